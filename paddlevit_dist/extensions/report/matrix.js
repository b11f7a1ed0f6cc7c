// A matrix of many classes on a canvas: each cell's shade is its share of the row; off the diagonal in another color.

class Matrix {
  constructor(figure) {
    const { names, cells, is_pairs } = readJson(figure);
    this.names = names;
    this.isPairs = is_pairs;
    this.size = names.length;
    this.canvas = figure.querySelector("canvas");
    this.under = figure.querySelector(".under");
    this.counts = new Map();
    this.rows = new Float64Array(this.size);
    for (let place = 0; place < cells.length; place += 3) {
      this.counts.set(cells[place] * this.size + cells[place + 1], cells[place + 2]);
      this.rows[cells[place]] += cells[place + 2];
    }
    if (is_pairs) this.rows.fill(Math.max(...this.counts.values(), 1));
    this.at = null;
    this.pointers = new Map();
    figure.querySelectorAll("[data-do]").forEach((button) =>
      button.addEventListener("click", () => this.act(button.dataset.do)));
    this.canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 1.25 : 0.8, ...this.place(event));
    }, { passive: false });
    this.canvas.addEventListener("pointerdown", (event) => {
      this.pointers.set(event.pointerId, event);
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"])
      this.canvas.addEventListener(name, (event) => this.pointers.delete(event.pointerId));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.paint());
    this.act("reset");
  }

  act(what) {
    const middle = this.span / 2;
    if (what === "reset") [this.left, this.top, this.span] = [0, 0, this.size];
    else this.zoom(what === "in" ? 1.5 : 1 / 1.5, this.left + middle, this.top + middle);
    this.paint();
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return [this.left + (event.clientX - box.left) / box.width * this.span,
      this.top + (event.clientY - box.top) / box.height * this.span];
  }

  zoom(factor, x, y) {
    const span = Math.min(Math.max(this.span / factor, Math.min(8, this.size)), this.size);
    this.left = x - (x - this.left) * span / this.span;
    this.top = y - (y - this.top) * span / this.span;
    this.span = span;
    this.keepInside();
    this.paint();
  }

  keepInside() {
    this.left = Math.min(Math.max(this.left, 0), this.size - this.span);
    this.top = Math.min(Math.max(this.top, 0), this.size - this.span);
  }

  move(event) {
    const before = this.pointers.get(event.pointerId);
    if (before) {
      const box = this.canvas.getBoundingClientRect();
      const others = [...this.pointers.values()].filter((other) => other.pointerId !== event.pointerId);
      const share = this.span / box.width / (others.length + 1);
      if (others.length) {
        const distance = (one) => Math.hypot(one.clientX - others[0].clientX, one.clientY - others[0].clientY);
        this.zoom(distance(event) / Math.max(distance(before), 1), ...this.place(event));
      }
      this.left -= (event.clientX - before.clientX) * share;
      this.top -= (event.clientY - before.clientY) * share;
      this.pointers.set(event.pointerId, event);
      this.keepInside();
      this.paint();
    }
    this.tell(...this.place(event).map(Math.floor).reverse());
  }

  key(event) {
    const steps = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
    const acts = { "+": "in", "=": "in", "-": "out", "0": "reset" };
    if (acts[event.key]) this.act(acts[event.key]);
    else if (steps[event.key]) {
      const [row, column] = this.at || [-steps[event.key][0], -steps[event.key][1]];
      const end = this.size - 1;
      this.tell(Math.min(Math.max(row + steps[event.key][0], 0), end), Math.min(Math.max(column + steps[event.key][1], 0), end));
      const [y, x] = this.at;
      if (x < this.left || x >= this.left + this.span) this.left = x - this.span / 2;
      if (y < this.top || y >= this.top + this.span) this.top = y - this.span / 2;
      this.keepInside();
      this.paint();
    } else return;
    event.preventDefault();
  }

  tell(row, column) {
    if (!(row >= 0 && column >= 0 && row < this.size && column < this.size)) return;
    this.at = [row, column];
    const count = this.counts.get(row * this.size + column) || 0;
    if (this.isPairs) {
      const both = row === column ? this.names[row] : `${this.names[row]} and ${this.names[column]}`;
      this.under.textContent = `${both}: ${number(count)}`;
      return;
    }
    const what = row === column ? "predicted correctly" : `predicted as ${this.names[column]}`;
    this.under.textContent = `${this.names[row]} ${what}: ${number(count)} of ${number(this.rows[row])}`;
  }

  paint() {
    const style = getComputedStyle(document.documentElement);
    const context = this.canvas.getContext("2d"), side = this.canvas.width, cell = side / this.span;
    context.fillStyle = style.getPropertyValue("--paper");
    context.fillRect(0, 0, side, side);
    const [right, wrong] = ["--heat", "--wrong"].map((name) => style.getPropertyValue(name));
    for (const [key, count] of this.counts) {
      const row = Math.floor(key / this.size), column = key % this.size;
      if (row + 1 < this.top || row > this.top + this.span || column + 1 < this.left || column > this.left + this.span) continue;
      const shade = 0.25 + 0.75 * Math.sqrt(count / this.rows[row]);
      context.fillStyle = `rgba(${this.isPairs || row === column ? right : wrong},${shade.toFixed(3)})`;
      // A cell of less than a pixel must still be seen.
      context.fillRect((column - this.left) * cell, (row - this.top) * cell, Math.max(cell, 1.2), Math.max(cell, 1.2));
    }
    if (this.at) {
      context.strokeStyle = style.getPropertyValue("--ink");
      context.strokeRect((this.at[1] - this.left) * cell, (this.at[0] - this.top) * cell, Math.max(cell, 4), Math.max(cell, 4));
    }
    this.canvas.dataset.drawn = this.counts.size;
  }
}

document.querySelectorAll("canvas.cells").forEach((canvas) =>
  onceVisible(canvas, () => new Matrix(canvas.closest("figure"))));
