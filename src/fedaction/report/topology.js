// The learned topology: matrices as heat maps, and their strongest links on the body.

const MATRICES = [
  ["A", "A", "the skeleton's bones, fixed"],
  ["I", "I", "learned and shared by all clients"],
  ["U", "U", "learned, private to this client"],
  ["sum", "", "what the model uses"],
];
const TERMS = { A: "αA", I: "βI", U: "γU" };

// Off the diagonal, the stronger direction of each pair of joints, strongest first.
function strongestLinks(matrix, count) {
  const links = [];
  for (let i = 0; i < matrix.length; i += 1) {
    for (let j = i + 1; j < matrix.length; j += 1) {
      const value = Math.abs(matrix[i][j]) >= Math.abs(matrix[j][i]) ? matrix[i][j] : matrix[j][i];
      if (value) links.push([value, i, j]);
    }
  }
  return links.sort((a, b) => Math.abs(b[0]) - Math.abs(a[0])).slice(0, count);
}

function drawBody(host, graph, key, count, pose) {
  const { joints, edges } = graph.layout;
  const links = strongestLinks(graph[key], count);
  const figure = host.appendChild(el("figure", {}, el("figcaption", {}, `${key} on the body`)));
  if (!links.length) {
    figure.append(el("p", {}, "No link differs from zero."));
    return;
  }
  const [width, height] = [420, 400];
  const places = frontView(pose, joints, width, height, 26);
  const told = ([value, i, j]) => `${words(joints[i])} – ${words(joints[j])} ${format.signed(value)}`;
  const label = `The ${links.length} strongest links of ${key}, drawn on the body: ${links.map(told).join("; ")}`;
  const picture = svg("svg", { class: "body", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const [a, b] of edges) {
    const ends = { x1: places[a][0], y1: places[a][1], x2: places[b][0], y2: places[b][1] };
    picture.append(svg("line", { class: "bone", ...ends }));
  }
  const most = Math.abs(links[0][0]);
  const spine = places[joints.indexOf(graph.layout.centre)][0];
  for (const [value, i, j] of [...links].reverse()) {
    const [[ax, ay], [bx, by]] = [places[i], places[j]];
    // Bent away from the middle of the body, so that links do not lie on bones or on one another.
    const middle = [(ax + bx) / 2, (ay + by) / 2];
    const away = middle[0] >= spine ? 1 : -1;
    const bend = 0.22 * Math.hypot(ax - bx, ay - by) + 6;
    const upright = Math.abs(by - ay) >= Math.abs(bx - ax);
    const knee = upright ? [middle[0] + away * bend, middle[1]] : [middle[0], middle[1] - bend];
    const share = Math.abs(value) / most;
    const path = svg("path", {
      class: value < 0 ? "link negative" : "link",
      d: `M${ax},${ay}Q${knee},${bx},${by}`,
      "stroke-width": (1 + 4.5 * share).toFixed(2),
      "stroke-opacity": (0.35 + 0.6 * share).toFixed(2),
    });
    path.addEventListener("pointermove", (event) =>
      showTip(event.clientX, event.clientY, el("strong", {}, `${words(joints[i])} – ${words(joints[j])}`), el("p", {}, format.signed(value))),
    );
    path.addEventListener("pointerleave", hideTip);
    picture.append(path);
  }
  places.forEach(([cx, cy], v) => {
    const dot = svg("circle", { class: "joint", cx, cy, r: 4.5 });
    dot.addEventListener("pointermove", (event) => showTip(event.clientX, event.clientY, words(joints[v])));
    dot.addEventListener("pointerleave", hideTip);
    picture.append(dot);
  });
  const list = el("ol", { class: "links" }, links.slice(0, 5).map(([value, i, j]) =>
    el("li", {}, `${words(joints[i])} – ${words(joints[j])} `, el("small", {}, format.signed(value)))));
  figure.append(picture, list);
}

function drawTopology() {
  if (!data.topology.length) return "Learned topology: this run kept none.";
  const node = section(
    "topology",
    "Learned topology",
    "How strongly each joint listens to each other: row the listener, column the one listened to. Blue (solid) adds, orange (dashed) takes away. ",
    "Hover over a cell, a link or a joint for its name.",
  );
  let client = 0;
  let count = 12;
  const maps = el("div", { class: "maps" });
  const bodies = el("div", { class: "pair" });
  const slider = el("input", { type: "range", id: "links", min: 4, max: 40, value: count });
  const shown = el("output", { for: "links" }, String(count));
  const drawBodies = () => {
    const graph = data.topology[client];
    const samples = data.samples.find((item) => item.client === graph.client)?.items ?? [];
    const sample = samples.find((item) => item.layout.joints.join() === graph.layout.joints.join());
    const pose = sample ? meanPose(sample) : standingPose(graph.layout);
    bodies.replaceChildren();
    for (const key of ["I", "U"]) if (graph[key]) drawBody(bodies, graph, key, count, pose);
  };
  slider.addEventListener("input", () => {
    count = Number(slider.value);
    shown.textContent = slider.value;
    drawBodies();
  });
  const draw = () => {
    const graph = data.topology[client];
    const names = graph.layout.joints.map(words);
    const parts = ["A", "I", "U"].map((key, k) => [graph[key], graph.weights[k]]).filter(([matrix]) => matrix);
    const sum = names.map((_, r) => names.map((_, c) => parts.reduce((total, [matrix, weight]) => total + weight * matrix[r][c], 0)));
    maps.replaceChildren();
    for (const [key, name, meaning] of MATRICES) {
      const title = name || Object.keys(TERMS).filter((part) => graph[part]).map((part) => TERMS[part]).join(" + ");
      const matrix = key === "sum" ? sum : graph[key];
      if (!matrix) continue;
      const most = Math.max(...matrix.flat().map(Math.abs)) || 1;
      const figure = maps.appendChild(el("figure", {}, el("figcaption", {}, title, el("span", {}, meaning))));
      heatmap(figure, {
        label: `${title}, ${meaning}: ${names.length} by ${names.length} joints, largest strength ${format.number(most)}`,
        names,
        cell: (r, c) => ({ share: matrix[r][c] / most }),
        tell: (r, c) => [el("strong", {}, `${names[r]} ← ${names[c]}`), el("p", {}, format.signed(matrix[r][c]))],
      });
      const ends = [-most, most].map((value) => el("span", {}, format.number(Number(value.toPrecision(2)))));
      figure.append(el("div", { class: "scale", "aria-hidden": "true" }, ends[0], el("i"), ends[1]));
    }
    const weights = ["α", "β", "γ"].map((name, k) => `${name} = ${format.number(graph.weights[k])}`);
    mix.textContent = weights.join(",  ");
    drawBodies();
  };
  const mix = el("p", { class: "mix" });
  node.append(
    el("div", { class: "controls" }, choice("Client", data.topology.map((graph) => graph.client), (i) => {
      client = i;
      draw();
    }), mix),
    maps,
    el("div", { class: "controls" }, el("p", { class: "control" }, el("label", { for: "links" }, "Strongest links drawn"), slider, shown)),
    bodies,
  );
  draw();
  return null;
}
