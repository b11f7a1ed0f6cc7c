// Points that turn, drawn pixel by pixel on a plain canvas: it needs no graphics driver.

const BACKGROUND = 0xff2d2620; // alpha, blue, green, red
const SLOW_MS = 60; // fewer points are drawn while they turn if an image takes longer

// Bytes of the zlib stream that the page holds as base64.
const unpack = async (text) => {
  const coded = atob(text.trim()), bytes = new Uint8Array(coded.length);
  for (let place = 0; place < coded.length; place++) bytes[place] = coded.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};

class Viewer {
  constructor(figure) {
    this.figure = figure;
    this.canvas = figure.querySelector("canvas");
    this.under = figure.querySelector(".under");
    this.count = +figure.dataset.number;
    this.layer = 0;
    this.pointers = new Map();
    this.reset();
  }

  async start() {
    if (!("DecompressionStream" in window)) {
      this.under.textContent = "The viewer needs a newer browser to decompress the points.";
      return;
    }
    const script = this.figure.querySelector("script.content");
    const bytes = await unpack(script.textContent), count = this.count;
    this.places = new Float32Array(count * 3); // from -0.5 to 0.5
    for (let axis = 0; axis < 3; axis++) {
      const low = bytes.subarray(2 * axis * count), high = bytes.subarray((2 * axis + 1) * count);
      for (let point = 0, sum = 0; point < count; point++) {
        sum = (sum + low[point] + 256 * high[point]) & 65535;
        this.places[3 * point + axis] = sum / 65535 - 0.5;
      }
    }
    this.colors = [];
    for (let layer = 0; layer < +this.figure.dataset.layers; layer++) {
      const colors = new Uint32Array(count).fill(0xff000000);
      for (let channel = 0; channel < 3; channel++) {
        const plane = bytes.subarray((6 + 3 * layer + channel) * count);
        for (let point = 0; point < count; point++) colors[point] |= plane[point] << (8 * channel);
      }
      this.colors.push(colors);
    }
    script.remove();
    this.figure.querySelector(".still").remove();
    this.canvas.hidden = false;
    this.listen();
    this.paint();
  }

  reset() {
    [this.yaw, this.tilt, this.distance, this.right, this.up] = [0.7, 0.8, 1.3, 0, 0];
    // As large as keeps a surface that fills the cube closed.
    this.size = Math.min(Math.max(1100 / Math.sqrt(this.count), 1.2), 12);
  }

  listen() {
    const canvas = this.canvas;
    this.figure.querySelectorAll("button").forEach((button) => button.addEventListener("click", () => {
      if (button.dataset.layer !== undefined) this.choose(+button.dataset.layer); else this.act(button.dataset.do);
    }));
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      this.pointers.set(event.pointerId, event);
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => this.drag(event));
    for (const name of ["pointerup", "pointercancel"])
      canvas.addEventListener(name, (event) => { this.pointers.delete(event.pointerId); this.plan(); });
    canvas.addEventListener("keydown", (event) => this.key(event));
    window.addEventListener("resize", () => this.plan());
  }

  choose(layer) {
    this.layer = layer;
    this.figure.querySelectorAll("[data-layer]").forEach((element) => {
      const own = +element.dataset.layer === layer;
      if (element.tagName === "UL") element.hidden = !own; else element.setAttribute("aria-pressed", own);
    });
    this.plan();
  }

  act(what) {
    if (what === "reset") this.reset();
    else if (what === "in" || what === "out") this.distance *= what === "in" ? 0.8 : 1.25;
    else this.size *= what === "bigger" ? 1.3 : 1 / 1.3;
    this.zoom(1);
  }

  zoom(factor) {
    this.distance = Math.min(Math.max(this.distance * factor, 0.05), 8);
    this.plan();
  }

  turn(yaw, tilt) {
    this.yaw += yaw;
    this.tilt = Math.min(Math.max(this.tilt + tilt, -1.57), 1.57);
    this.plan();
  }

  drag(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const box = this.canvas.getBoundingClientRect();
    const x = (event.clientX - before.clientX) / box.height, y = (event.clientY - before.clientY) / box.height;
    const other = [...this.pointers.values()].find((one) => one.pointerId !== event.pointerId);
    if (other) {
      const apart = (one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
      this.distance = Math.min(Math.max(this.distance * Math.max(apart(before), 1) / Math.max(apart(event), 1), 0.05), 8);
    }
    if (other || event.shiftKey || event.buttons & 6) {
      this.right += x * this.distance * (other ? 0.5 : 1);
      this.up -= y * this.distance * (other ? 0.5 : 1);
      this.plan();
    } else this.turn(-x * 4, y * 4);
    this.pointers.set(event.pointerId, event);
  }

  key(event) {
    const turns = { ArrowLeft: [0.1, 0], ArrowRight: [-0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1], PageUp: [0, 0.3], PageDown: [0, -0.3] };
    const acts = { "+": "in", "=": "in", "-": "out", "0": "reset" };
    if (turns[event.key]) this.turn(...turns[event.key]);
    else if (acts[event.key]) this.act(acts[event.key]);
    else if (/^[1-9]$/.test(event.key) && +event.key <= this.colors.length) this.choose(event.key - 1);
    else return;
    event.preventDefault();
  }

  plan() {
    if (!this.planned) this.planned = requestAnimationFrame(() => { this.planned = 0; this.paint(); });
  }

  // A turn about the third axis, which points up, a tilt and a shift; then perspective. The nearest point is seen.
  paint() {
    const canvas = this.canvas, began = performance.now();
    const width = Math.min(Math.max(Math.round(canvas.clientWidth * (devicePixelRatio || 1)), 64), 1200);
    const height = Math.round(width * 0.625);
    if (canvas.width !== width) [canvas.width, canvas.height] = [width, height];
    const context = canvas.getContext("2d"), image = context.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer).fill(BACKGROUND), depths = new Float32Array(width * height).fill(1e9);
    const [c, s, a, b] = [Math.cos(this.yaw), Math.sin(this.yaw), Math.cos(this.tilt), Math.sin(this.tilt)];
    const { places, distance, right, up, count } = this, colors = this.colors[this.layer];
    const focus = 0.8 * height, side = this.size * width / 480;
    const step = this.pointers.size && this.isSlow ? 4 : 1;
    for (let point = 0; point < count; point += step) {
      const x = places[3 * point], y = places[3 * point + 1], z = places[3 * point + 2];
      const depth = distance - s * a * x + c * a * y - b * z;
      if (depth < 0.01) continue;
      const size = Math.min(Math.max(Math.round(side / depth), 1), 24), zoom = focus / depth;
      const left = Math.round(width / 2 + (c * x + s * y + right) * zoom - size / 2);
      const top = Math.round(height / 2 - (c * b * y - s * b * x + a * z + up) * zoom - size / 2);
      if (left >= width || top >= height || left + size <= 0 || top + size <= 0) continue;
      const last = Math.min(left + size, width), bottom = Math.min(top + size, height), color = colors[point];
      for (let row = Math.max(top, 0); row < bottom; row++)
        for (let place = row * width + Math.max(left, 0); place < row * width + last; place++)
          if (depth < depths[place]) [depths[place], pixels[place]] = [depth, color];
    }
    context.putImageData(image, 0, 0);
    if (step === 1) this.isSlow = performance.now() - began > SLOW_MS;
    if (canvas.dataset.drawn) return;
    // Once, for whoever tests the page: how many points, and how many colors they show in the middle of the image.
    const middle = new Uint32Array(context.getImageData(width / 2 - 20, height / 2 - 20, 40, 40).data.buffer);
    Object.assign(canvas.dataset, { drawn: count, colors: new Set(middle).size });
  }
}

document.querySelectorAll("figure.points").forEach((figure) =>
  onceVisible(figure, () => new Viewer(figure).start()));

// ---- slices ------------------------------------------------------------------------------------------------

document.querySelectorAll(".stack").forEach((stack) => {
  const slider = stack.querySelector("input"), images = stack.querySelectorAll("img"); // pictures have their own numbers
  slider.addEventListener("input", () => {
    images.forEach((image, place) => { image.hidden = place !== +slider.value; });
    slider.setAttribute("aria-valuetext", `image ${+slider.value + 1} of ${images.length}`);
  });
});
