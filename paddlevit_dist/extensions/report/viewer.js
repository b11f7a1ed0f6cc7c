// Points that turn. One WebGL context draws for all viewers of the page, since a browser allows only a few.

const VERTEX = `
attribute vec3 place; attribute vec3 color; varying vec3 shown;
uniform mat4 view; uniform float size;
void main() {
  gl_Position = view * vec4(place - 0.5, 1.0);
  gl_PointSize = clamp(size / gl_Position.w, 1.0, 24.0);
  shown = color;
}`;
const FRAGMENT = `
precision mediump float; varying vec3 shown;
void main() { gl_FragColor = vec4(shown, 1.0); }`;

const drawing = { gl: null, program: null, canvas: null };

const startDrawing = () => {
  if (drawing.canvas) return drawing.gl;
  drawing.canvas = document.createElement("canvas");
  const gl = drawing.canvas.getContext("webgl", { antialias: true, preserveDrawingBuffer: true });
  if (!gl) return null;
  const program = gl.createProgram();
  for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  gl.useProgram(program);
  gl.enable(gl.DEPTH_TEST);
  Object.assign(drawing, { gl, program });
  return gl;
};

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
    const gl = startDrawing();
    if (!gl || !("DecompressionStream" in window)) {
      this.under.textContent = gl ? "The viewer needs a newer browser to decompress the points." : "The viewer needs WebGL, which this browser does not support.";
      return;
    }
    const script = this.figure.querySelector("script.content");
    const bytes = await unpack(script.textContent), count = this.count;
    const places = new Uint16Array(count * 3);
    for (let axis = 0; axis < 3; axis++) {
      const low = bytes.subarray(2 * axis * count), high = bytes.subarray((2 * axis + 1) * count);
      for (let point = 0, sum = 0; point < count; point++) {
        sum = (sum + low[point] + 256 * high[point]) & 65535;
        places[3 * point + axis] = sum;
      }
    }
    this.places = this.buffer(places);
    this.colors = [];
    for (let layer = 0; layer < +this.figure.dataset.layers; layer++) {
      const colors = new Uint8Array(count * 3);
      for (let channel = 0; channel < 3; channel++) {
        const plane = bytes.subarray((6 + 3 * layer + channel) * count);
        for (let point = 0; point < count; point++) colors[3 * point + channel] = plane[point];
      }
      this.colors.push(this.buffer(colors));
    }
    script.remove();
    this.listen();
    this.paint();
  }

  buffer(values) {
    const { gl } = drawing, made = gl.createBuffer();
    gl.bindBuffer(gl.ARRAY_BUFFER, made);
    gl.bufferData(gl.ARRAY_BUFFER, values, gl.STATIC_DRAW);
    return made;
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
      canvas.addEventListener(name, (event) => this.pointers.delete(event.pointerId));
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

  // Column-major: perspective x translation x tilt x turn about the third axis, which points up.
  view(aspect) {
    const [c, s, a, b] = [Math.cos(this.yaw), Math.sin(this.yaw), Math.cos(this.tilt), Math.sin(this.tilt)];
    const rows = [[c, s, 0, this.right], [-s * b, c * b, a, this.up], [s * a, -c * a, b, -this.distance]];
    const focus = 1.6, near = 0.01, far = 20;
    const depth = [(far + near) / (near - far), 2 * far * near / (near - far)];
    const matrix = new Float32Array(16);
    for (let column = 0; column < 4; column++) {
      matrix[4 * column] = rows[0][column] * focus / aspect;
      matrix[4 * column + 1] = rows[1][column] * focus;
      matrix[4 * column + 2] = rows[2][column] * depth[0] + (column === 3 ? depth[1] : 0);
      matrix[4 * column + 3] = -rows[2][column];
    }
    return matrix;
  }

  paint() {
    const { gl, program } = drawing, canvas = this.canvas;
    const width = Math.max(Math.round(canvas.clientWidth * Math.min(devicePixelRatio || 1, 2)), 64);
    const height = Math.round(width * 0.625);
    if (canvas.width !== width) [canvas.width, canvas.height] = [width, height];
    if (drawing.canvas.width !== width || drawing.canvas.height !== height)
      [drawing.canvas.width, drawing.canvas.height] = [width, height];
    gl.viewport(0, 0, width, height);
    gl.clearColor(0.125, 0.149, 0.176, 1);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    for (const [name, made, kind] of [["place", this.places, gl.UNSIGNED_SHORT], ["color", this.colors[this.layer], gl.UNSIGNED_BYTE]]) {
      const position = gl.getAttribLocation(program, name);
      gl.bindBuffer(gl.ARRAY_BUFFER, made);
      gl.enableVertexAttribArray(position);
      gl.vertexAttribPointer(position, 3, kind, true, 0, 0);
    }
    gl.uniformMatrix4fv(gl.getUniformLocation(program, "view"), false, this.view(width / height));
    gl.uniform1f(gl.getUniformLocation(program, "size"), this.size * width / 480);
    gl.drawArrays(gl.POINTS, 0, this.count);
    const context = canvas.getContext("2d");
    context.drawImage(drawing.canvas, 0, 0);
    if (canvas.dataset.drawn) return;
    // Once, for whoever tests the page: how many points, and how many colors they show in the middle of the image.
    canvas.dataset.drawn = this.count;
    const shown = new Uint32Array(context.getImageData(width / 2 - 20, height / 2 - 20, 40, 40).data.buffer);
    canvas.dataset.colors = new Set(shown).size;
  }
}

document.querySelectorAll("figure.points").forEach((figure) =>
  onceVisible(figure, () => new Viewer(figure).start()));
