// The page's data and the few helpers that every section is built with.

const data = JSON.parse(document.getElementById("data").textContent);
const main = document.getElementById("main");
const tip = document.getElementById("tip");
const svgSpace = document.querySelector("svg").namespaceURI;
const THIN = "\u202f"; // narrow no-break space, between a number and its unit

// Children are appended as nodes or as text, never parsed as markup: names in the data are anyone's.
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(svgSpace, tag), attributes, children);
}

const format = {
  percent: (value) => `${(100 * value).toFixed(1)}${THIN}%`,
  points: (value) => `${value >= 0 ? "+" : "\u2212"}${Math.abs(100 * value).toFixed(1)}`,
  number: (value) => (value === 0 ? "0" : Number(value.toPrecision(4)).toString().replace("-", "\u2212")),
  signed: (value) => `${value >= 0 ? "+" : "\u2212"}${Math.abs(value).toFixed(3)}`,
  bytes(value) {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let step = 0;
    while (Math.abs(value) >= 1000 && step < units.length - 1) {
      value /= 1000;
      step += 1;
    }
    return `${step === 0 ? Math.round(value) : Number(value.toPrecision(3))}${THIN}${units[step]}`;
  },
};

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const shorten = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const words = (joint) => joint.replaceAll("_", " ");

// Methods differ in colour and in dashes, so that neither is needed to tell them apart.
const DASHES = ["", "7 4", "2 4", "10 4 2 4", "4 3", "14 5"];
const methodColour = (index) => `var(--m${index % 6})`;
const methodDash = (index) => DASHES[(index + Math.floor(index / 6)) % 6];

function section(id, title, ...intro) {
  const node = el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title));
  if (intro.length) node.append(el("p", { class: "intro" }, ...intro));
  main.append(node);
  document.getElementById("contents").append(el("a", { href: `#${id}` }, title));
  return node;
}

// A labelled choice; one option needs no control and is shown as text.
let controls = 0;
function choice(label, options, change) {
  if (options.length < 2) return el("p", { class: "control" }, el("span", {}, label), el("b", {}, options[0] ?? ""));
  controls += 1;
  const id = `control-${controls}`;
  const select = el(
    "select",
    { id, onchange: () => change(select.selectedIndex) },
    options.map((text) => el("option", {}, text)),
  );
  return el("p", { class: "control" }, el("label", { for: id }, label), select);
}

// Calls draw(width) now and whenever the width changes.
function onWidth(node, draw) {
  let last = 0;
  const check = () => {
    const width = Math.floor(node.clientWidth);
    if (width > 0 && width !== last) {
      last = width;
      draw(width);
    }
  };
  // Drawing inside the observer's own call could change the width again within it.
  new ResizeObserver(() => requestAnimationFrame(check)).observe(node);
  check();
}

function showTip(x, y, ...children) {
  tip.replaceChildren(...children);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 16 + box.width > innerWidth - 8 ? x - 16 - box.width : x + 16;
  tip.style.left = `${clamp(left, 8, Math.max(8, innerWidth - box.width - 8))}px`;
  tip.style.top = `${clamp(y - box.height / 2, 8, Math.max(8, innerHeight - box.height - 8))}px`;
}

function hideTip() {
  tip.hidden = true;
}

addEventListener("keydown", (event) => event.key === "Escape" && hideTip());
addEventListener("scroll", hideTip, { passive: true });

function swatch(colour, dash = "") {
  return svg(
    "svg",
    { class: "swatch", width: 26, height: 10, "aria-hidden": "true" },
    svg("line", { x1: 1, x2: 25, y1: 5, y2: 5, "stroke-width": 2.5, "stroke-dasharray": dash, style: `stroke:${colour}` }),
  );
}

function legend(entries) {
  return el("ul", { class: "legend" }, entries.map(([text, colour, dash]) => el("li", {}, swatch(colour, dash), text)));
}
