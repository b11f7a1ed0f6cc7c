// A matrix of many classes on a canvas, which its box scrolls: each cell's shade is its share of the row.

const LARGEST_SIDE = 2048; // pixels of the canvas

class Matrix {
  constructor(figure) {
    const { names, cells, is_pairs } = readJson(figure);
    Object.assign(this, { names, isPairs: is_pairs, size: names.length, scale: 1, at: null, counts: new Map() });
    this.canvas = figure.querySelector("canvas");
    this.under = figure.querySelector(".under");
    this.rows = new Float64Array(this.size);
    for (let place = 0; place < cells.length; place += 3) {
      this.counts.set(cells[place] * this.size + cells[place + 1], cells[place + 2]);
      this.rows[cells[place]] += cells[place + 2];
    }
    if (is_pairs) this.rows.fill(Math.max(...this.counts.values(), 1));
    this.canvas.width = this.canvas.height = Math.min(Math.max(640, 8 * this.size), LARGEST_SIDE);
    figure.querySelectorAll("[data-do]").forEach((button) =>
      button.addEventListener("click", () => this.zoom(button.dataset.do)));
    this.canvas.addEventListener("pointermove", (event) => this.tell(
      ...[event.offsetY, event.offsetX].map((offset) => Math.floor(offset / this.canvas.clientWidth * this.size))));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.paint());
    this.paint();
  }

  zoom(what) {
    const box = this.canvas.parentElement, factor = { in: 1.5, out: 1 / 1.5, reset: 0 }[what], before = this.scale;
    this.scale = Math.min(Math.max(this.scale * factor, 1), Math.max(this.size / 8, 1));
    this.canvas.style.width = `${100 * this.scale}%`;
    const half = box.clientWidth / 2, ratio = this.scale / before;
    box.scrollTo((box.scrollLeft + half) * ratio - half, (box.scrollTop + half) * ratio - half);
  }

  key(event) {
    const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    const act = { "+": "in", "=": "in", "-": "out", "0": "reset" }[event.key];
    if (!step && !act) return;
    event.preventDefault();
    if (act) return this.zoom(act);
    const [row, column] = this.at || [-step[0], -step[1]], end = this.size - 1;
    this.tell(Math.min(Math.max(row + step[0], 0), end), Math.min(Math.max(column + step[1], 0), end));
    const box = this.canvas.parentElement, cell = this.canvas.clientWidth / this.size, half = box.clientWidth / 2;
    box.scrollTo(this.at[1] * cell - half, this.at[0] * cell - half);
    this.paint();
  }

  tell(row, column) {
    if (!(row >= 0 && column >= 0 && row < this.size && column < this.size)) return;
    this.at = [row, column];
    const count = number(this.counts.get(row * this.size + column) || 0), [name, other] = [this.names[row], this.names[column]];
    if (this.isPairs) this.under.textContent = `${row === column ? name : `${name} and ${other}`}: ${count}`;
    else {
      const what = row === column ? "predicted correctly" : `predicted as ${other}`;
      this.under.textContent = `${name} ${what}: ${count} of ${number(this.rows[row])}`;
    }
  }

  paint() {
    const style = getComputedStyle(document.documentElement), side = this.canvas.width, cell = side / this.size;
    const context = this.canvas.getContext("2d");
    context.fillStyle = style.getPropertyValue("--paper");
    context.fillRect(0, 0, side, side);
    const [right, other] = ["--shade", "--tint"].map((name) => style.getPropertyValue(name));
    const least = Math.max(cell, 1.9 * side / 640); // a cell of less than a pixel must still be seen
    for (const [key, count] of this.counts) {
      const row = Math.floor(key / this.size), column = key % this.size;
      const shade = 0.25 + 0.75 * Math.sqrt(count / this.rows[row]);
      context.fillStyle = `rgba(${!this.isPairs && row === column ? right : other},${shade.toFixed(3)})`;
      context.fillRect(column * cell, row * cell, least, least);
    }
    if (this.at) {
      context.strokeStyle = style.getPropertyValue("--ink");
      context.lineWidth = side / 320;
      context.strokeRect(this.at[1] * cell, this.at[0] * cell, least, least);
    }
    this.canvas.dataset.drawn = this.counts.size;
  }
}

document.querySelectorAll("canvas.cells").forEach((canvas) =>
  onceVisible(canvas, () => new Matrix(canvas.closest("figure"))));
