"use strict";
// Charts that tell their values, tables that sort, and what the matrix and the viewer share.

window.addEventListener("error", (event) => {
  const box = document.createElement("p");
  box.className = "problem";
  box.textContent = "This page's script failed: " + event.message;
  document.body.append(box);
});

const make = (name, attributes, parent) => {
  const svg = "http://www.w3.org/2000/svg";
  const element = parent && parent.namespaceURI === svg ? document.createElementNS(svg, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  if (parent) parent.append(element);
  return element;
};

const number = (value) => {
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Math.abs(value) >= 1e5 || Math.abs(value) < 1e-3 ? value.toExponential(3) : String(+value.toPrecision(5));
};

const onceVisible = (element, action) => {
  if (!("IntersectionObserver" in window)) return action();
  const act = () => {
    watch.disconnect();
    window.removeEventListener("beforeprint", act);
    action();
  };
  const watch = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) act();
  }, { rootMargin: "300px" });
  watch.observe(element);
  window.addEventListener("beforeprint", act); // paper shows all of the page
};

const readJson = (figure) => JSON.parse(figure.querySelector("script.data").textContent);

// ---- charts ------------------------------------------------------------------------------------------------

class Chart {
  constructor(figure) {
    this.svg = figure.querySelector("svg");
    this.under = figure.querySelector(".under");
    this.data = readJson(figure);
    this.at = null;
    this.offerLog(figure);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerdown", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.leave());
    this.svg.addEventListener("blur", () => this.leave());
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.places = [...new Set(this.data.lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  }

  offerLog(figure) {
    const views = figure.querySelectorAll(".view");
    if (views.length < 2) return;
    const button = make("button", { type: "button", class: "log", "aria-pressed": "false" }, figure);
    button.textContent = "log";
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", views[1].hasAttribute("hidden"));
      for (const view of views) view.toggleAttribute("hidden");
    });
  }

  px(x) {
    const [left, , width] = this.data.box;
    return left + (x - this.data.x[0]) / (this.data.x[1] - this.data.x[0]) * width;
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const [left, , width] = this.data.box;
    const inside = (event.clientX - box.left) / box.width * this.svg.viewBox.baseVal.width;
    this.show(this.data.x[0] + (inside - left) / width * (this.data.x[1] - this.data.x[0]));
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const now = this.at === null ? (step > 0 ? -1 : this.places.length) : this.places.indexOf(this.at);
    const by = event.shiftKey ? Math.ceil(this.places.length / 20) : 1;
    this.show(this.places[Math.min(Math.max(now + step * by, 0), this.places.length - 1)]);
  }

  leave() {
    this.at = null;
    this.svg.querySelector(".cursor")?.remove();
    this.under.textContent = "";
  }

  show(x) {
    const nearest = (values) => {
      let low = 0, high = values.length - 1;
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (values[middle] < x) low = middle; else high = middle;
      }
      return Math.abs(values[low] - x) <= Math.abs(values[high] - x) ? low : high;
    };
    this.at = this.places[nearest(this.places)];
    const [, top, , height] = this.data.box;
    this.svg.querySelector(".cursor")?.remove();
    make("path", { class: "cursor", d: `M${this.px(this.at)} ${top}v${height}` }, this.svg);
    const lines = this.data.lines.filter((line) => line.style !== "thin");
    const several = lines.length > 1;
    this.under.textContent = number(this.at) + ": " + lines.map((line) => {
      const place = nearest(line.x);
      const where = line.x[place] === this.at || !several ? "" : ` (at ${number(line.x[place])})`;
      return (several ? line.name + " " : "") + number(line.y[place]) + where;
    }).join(", ");
  }
}

// ---- tables ------------------------------------------------------------------------------------------------

const cellValue = (row, column) => {
  const said = row.children[column].textContent.trim();
  const plain = said.replace(/,/g, "");
  return plain !== "" && Number.isFinite(+plain) ? +plain : said;
};

const sortBy = (table, column, heading) => {
  const descending = heading.getAttribute("aria-sort") === "descending" ||
    (!heading.hasAttribute("aria-sort") && typeof cellValue(table.tBodies[0].rows[0], column) === "string");
  for (const other of table.tHead.rows[0].children) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", descending ? "ascending" : "descending");
  const sign = descending ? 1 : -1;
  const rows = [...table.tBodies[0].rows].map((row) => [cellValue(row, column), row]);
  rows.sort(([a], [b]) => {
    if (a === "" || b === "") return (a === "") - (b === "");  // empty cells last
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return sign * (typeof a === "number" ? a - b : a.localeCompare(b));
  });
  table.tBodies[0].append(...rows.map(([, row]) => row));
};

const makeSortable = (table) => {
  if (table.tBodies[0].rows.length < 2) return;
  [...table.tHead.rows[0].children].forEach((heading, column) => {
    const button = make("button", { type: "button" });
    button.textContent = heading.textContent;
    heading.replaceChildren(button);
    button.addEventListener("click", () => sortBy(table, column, heading));
  });
};

const makeSearchable = (scroll) => {
  const field = make("input", { type: "search", class: "find", placeholder: "search…", "aria-label": "search rows" });
  scroll.before(field);
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase();
    for (const row of scroll.querySelectorAll("tbody tr")) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
};

// Says below a box how much of its table is seen, and where more follows.
const tellMore = (box) => {
  const figure = box.parentElement, line = figure.querySelector(".more-rows") || make("p", { class: "more-rows" });
  box.after(line);
  const update = () => {
    const rows = [...box.querySelectorAll("tbody tr")].filter((row) => !row.hidden), edge = box.getBoundingClientRect();
    const isBelow = box.scrollHeight - box.clientHeight - box.scrollTop > 2, isAbove = box.scrollTop > 2;
    const isRight = box.scrollWidth - box.clientWidth - box.scrollLeft > 2, isLeft = box.scrollLeft > 2;
    box.classList.toggle("more-below", isBelow);
    box.classList.toggle("more-right", isRight);
    const seen = rows.filter((row) => row.getBoundingClientRect().bottom <= edge.bottom + 4).length;
    const first = rows.filter((row) => row.getBoundingClientRect().bottom <= edge.top + row.clientHeight).length;
    const texts = [];
    if (isBelow || isAbove) texts.push(`rows ${first + 1} to ${seen} of ${rows.length}: scroll ${isBelow ? "down" : "up"} for more`);
    if (isRight || isLeft) texts.push(`scroll sideways for more columns ${isRight ? "→" : "←"}`);
    line.textContent = texts.join("; ");
    line.hidden = !texts.length;
  };
  update();
  box.addEventListener("scroll", update, { passive: true });
  new ResizeObserver(update).observe(box);
  box.querySelectorAll("tbody").forEach((body) => new ResizeObserver(update).observe(body));
};

document.querySelectorAll("figure.chart").forEach((figure) => {
  if (figure.querySelector("svg")) onceVisible(figure, () => new Chart(figure));
});
document.querySelectorAll("table.sorted").forEach(makeSortable);
document.querySelectorAll(".scroll.tall").forEach(makeSearchable);
document.querySelectorAll(".scroll").forEach(tellMore);
// Phones show the first pictures of a gallery.
document.querySelectorAll("figure.gallery").forEach((figure) => {
  const number = figure.querySelectorAll("li").length;
  if (number <= (figure.querySelector("li.large") ? 4 : 6)) return;
  figure.classList.add("short");
  const button = make("button", { type: "button", class: "more" }, make("p", { class: "tools" }, figure));
  button.textContent = `show all ${number}`;
  button.addEventListener("click", () => { figure.classList.remove("short"); button.remove(); });
});
// What a link leads to must not stay folded away.
const unfold = () => {
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (target) target.querySelector("details")?.setAttribute("open", "");
};
window.addEventListener("hashchange", unfold);
unfold();
