// Recorded actions, played as skeletons that can be turned.

const SPEEDS = [0.25, 0.5, 1, 2];
const HANDS = ["left_hand", "right_hand", "left_wrist", "right_wrist"];

function drawPlayer() {
  if (!data.samples.length) return "Actions to watch: this run kept no samples.";
  const node = section(
    "player",
    "Watch the actions",
    "Test samples and what the model called them. Drag the picture, or use the arrow keys, to turn it; space plays and pauses.",
  );
  const state = { client: 0, sample: 0, time: 0, speed: 1, playing: false, yaw: 0, pitch: 0.12, started: false };
  const canvas = el("canvas", { tabindex: 0, role: "img" });
  const button = el("button", { type: "button", class: "play" });
  const scrub = el("input", { type: "range", id: "scrub", min: 0, step: 1, value: 0 });
  const clock = el("output", { for: "scrub" });
  const verdict = el("div", { class: "verdict", role: "status" });
  const list = el("div", { class: "samples", role: "group", "aria-label": "Samples" });
  const sample = () => data.samples[state.client].items[state.sample];
  let scene = null;

  const prepare = () => {
    const item = sample();
    const frames = Array.from({ length: frameCount(item) }, (_, t) => frameOf(item, t));
    const seen = frames.flat().filter(Boolean);
    let [low, high, sum] = [Infinity, -Infinity, [0, 0]];
    for (const [x, y, z] of seen) {
      [low, high] = [Math.min(low, y), Math.max(high, y)];
      sum = [sum[0] + x / seen.length, sum[1] + z / seen.length];
    }
    // The whole performance fits the picture from every side; people stand on the middle of the floor.
    const middle = [sum[0], (low + high) / 2, sum[1]];
    const reach = seen.reduce((most, [x, , z]) => Math.max(most, 1.6 * Math.hypot(x - middle[0], z - middle[2])), Math.max(high - low, 1e-6));
    const shift = (joint) => joint && joint.map((value, axis) => (value - middle[axis]) / reach);
    const { joints } = item.layout;
    const hands = ["left", "right"].map((side) => HANDS.map((name) => joints.indexOf(name)).find((v) => v >= 0 && joints[v].startsWith(side)));
    scene = {
      frames: frames.map((frame) => frame.map(shift)),
      floor: (low - high) / 2 / reach,
      yaw: facing(meanPose(item), joints),
      side: joints.map((name) => (name.startsWith("left_") ? "--left" : name.startsWith("right_") ? "--right" : "--middle")),
      head: joints.indexOf("head"),
      hands: hands.filter((v) => v !== undefined),
      edges: item.layout.edges,
    };
    state.time = 0;
    scrub.max = frames.length - 1;
  };

  const paint = () => {
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!width || !scene) return;
    const dots = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * dots) || canvas.height !== Math.round(height * dots)) {
      [canvas.width, canvas.height] = [Math.round(width * dots), Math.round(height * dots)];
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const size = Math.min(width * 0.9, height * 0.8);
    const project = (joint) => {
      const [x, y, z] = turn(joint, scene.yaw + state.yaw, state.pitch);
      const near = 3 / (3 - z);
      return [width / 2 + x * size * near, height * 0.49 - y * size * near, near];
    };
    pen.lineCap = "round";
    pen.strokeStyle = colour("--rule");
    pen.lineWidth = 1;
    for (const radius of [0.18, 0.36, 0.54]) {
      pen.beginPath();
      for (let k = 0; k <= 48; k += 1) {
        const angle = (k / 24) * Math.PI;
        pen.lineTo(...project([radius * Math.cos(angle), scene.floor, radius * Math.sin(angle)]).slice(0, 2));
      }
      pen.stroke();
    }
    const t = Math.min(scene.frames.length - 1, Math.floor(state.time));
    for (const v of scene.hands) {
      for (let back = Math.max(1, t - 12); back <= t; back += 1) {
        const [from, to] = [scene.frames[back - 1][v], scene.frames[back][v]];
        if (!from || !to) continue;
        pen.strokeStyle = colour(scene.side[v]);
        pen.globalAlpha = 0.4 * (1 - (t - back) / 13);
        pen.lineWidth = 3;
        pen.beginPath();
        pen.moveTo(...project(from).slice(0, 2));
        pen.lineTo(...project(to).slice(0, 2));
        pen.stroke();
      }
    }
    pen.globalAlpha = 1;
    const places = scene.frames[t].map((joint) => joint && project(joint));
    const bones = scene.edges.filter(([a, b]) => places[a] && places[b]);
    bones.sort((p, q) => places[p[0]][2] + places[p[1]][2] - places[q[0]][2] - places[q[1]][2]);
    for (const [a, b] of bones) {
      const tint = scene.side[a] === "--middle" ? scene.side[b] : scene.side[a];
      pen.strokeStyle = colour(tint);
      pen.lineWidth = clamp(size / 75, 2.5, 6) * ((places[a][2] + places[b][2]) / 2) ** 2;
      pen.beginPath();
      pen.moveTo(places[a][0], places[a][1]);
      pen.lineTo(places[b][0], places[b][1]);
      pen.stroke();
    }
    places.forEach((place, v) => {
      if (!place) return;
      pen.fillStyle = colour(scene.side[v]);
      pen.beginPath();
      pen.arc(place[0], place[1], (v === scene.head ? size / 28 : clamp(size / 110, 2.5, 4.5)) * place[2], 0, 2 * Math.PI);
      pen.fill();
    });
    scrub.value = t;
    const seconds = (frame) => (frame / sample().rate).toFixed(1);
    clock.textContent = `${seconds(t)} / ${seconds(scene.frames.length - 1)}${THIN}s`;
    scrub.setAttribute("aria-valuetext", `${seconds(t)} seconds`);
  };

  let before = null;
  const tick = (now) => {
    if (!state.playing) return;
    if (before !== null) {
      // A tab that slept must not jump: a step is at most a tenth of a second.
      state.time += Math.min(0.1, (now - before) / 1000) * sample().rate * state.speed;
      if (state.time >= scene.frames.length) state.time %= scene.frames.length;
    }
    before = now;
    paint();
    requestAnimationFrame(tick);
  };
  const play = (wanted) => {
    state.started = true;
    if (wanted === state.playing) return;
    state.playing = wanted;
    button.textContent = wanted ? "❚❚ Pause" : "▶ Play";
    before = null;
    if (wanted) requestAnimationFrame(tick);
  };
  button.textContent = "▶ Play";

  const mark = (item) => (item.label === item.predicted ? "✓" : "✗");
  const show = () => {
    const item = sample();
    const right = item.label === item.predicted;
    prepare();
    const sure = item.confidence === null ? "" : ` with ${(100 * item.confidence).toFixed(0)}${THIN}% confidence`;
    verdict.className = right ? "verdict right" : "verdict wrong";
    verdict.replaceChildren(
      el("p", {}, el("span", {}, "True action"), el("b", {}, item.label)),
      el("p", {}, el("span", {}, "Predicted"), el("b", {}, `${mark(item)} ${item.predicted}`), el("small", {}, `${right ? "right" : "wrong"}${sure}`)),
    );
    canvas.setAttribute("aria-label", `Skeleton performing ${item.label}, predicted ${item.predicted}`);
    [...list.children].forEach((child, i) => child.setAttribute("aria-pressed", String(i === state.sample)));
    paint();
  };
  const fillList = () => {
    list.replaceChildren(...data.samples[state.client].items.map((item, i) => {
      const right = item.label === item.predicted;
      const sign = el("i", { class: right ? "right" : "wrong" }, `${mark(item)} ${right ? "right" : "wrong"}`);
      return el("button", { type: "button", onclick: () => {
        state.sample = i;
        show();
      } }, el("span", {}, item.label), sign);
    }));
  };

  button.addEventListener("click", () => play(!state.playing));
  scrub.addEventListener("input", () => {
    play(false);
    state.time = Number(scrub.value);
    paint();
  });
  let grip = null;
  canvas.addEventListener("pointerdown", (event) => {
    grip = [event.clientX, event.clientY];
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!grip) return;
    state.yaw -= (event.clientX - grip[0]) / 120;
    state.pitch = clamp(state.pitch + (event.clientY - grip[1]) / 200, -0.5, 1.4);
    grip = [event.clientX, event.clientY];
    paint();
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (grip = null));
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [0.15, 0], ArrowRight: [-0.15, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] }[event.key];
    if (move) [state.yaw, state.pitch] = [state.yaw + move[0], clamp(state.pitch + move[1], -0.5, 1.4)];
    else if (event.key === " ") play(!state.playing);
    else return;
    event.preventDefault();
    paint();
  });

  const speed = choice("Speed", SPEEDS.map((value) => `${value}×`), (i) => (state.speed = SPEEDS[i]));
  speed.querySelector("select").selectedIndex = SPEEDS.indexOf(1);
  const front = el("button", { type: "button", onclick: () => {
    [state.yaw, state.pitch] = [0, 0.12];
    paint();
  } }, "Front view");
  const who = choice("Client", data.samples.map((item) => item.client), (i) => {
    [state.client, state.sample] = [i, 0];
    fillList();
    show();
  });
  const keys = el("ul", { class: "legend" }, [["their left", "--left"], ["their right", "--right"]].map(([text, name]) => el("li", {}, swatch(`var(${name})`), text)));
  const stage = el("div", { class: "stage" }, canvas,
    el("p", { class: "scrubber" }, button, el("label", { for: "scrub", class: "hidden" }, "Time"), scrub, clock),
    el("div", { class: "controls" }, speed, front, keys));
  node.append(el("div", { class: "controls" }, who), el("div", { class: "beside" }, stage, el("div", { class: "aside" }, verdict, list)));
  fillList();
  show();
  onWidth(canvas, paint);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  // Starts by itself when first seen, unless the reader's system asks for stillness.
  if (!matchMedia("(prefers-reduced-motion: reduce)").matches) {
    new IntersectionObserver((entries, watch) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      watch.disconnect();
      if (!state.started) play(true);
    }, { threshold: 0.6 }).observe(canvas);
  }
  return null;
}
