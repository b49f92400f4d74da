// Where joints are: poses out of samples, a plain standing pose by name, and turning them to face the reader.

// (x, y) in metres of a person who faces us: their left is on our right. Sided joints are given for the left.
const STANDING = {
  spine_base: [0, 0.95], spine_low: [0, 1.04], spine_mid: [0, 1.17], spine_shoulder: [0, 1.42], neck: [0, 1.5],
  skull_base: [0, 1.56], head: [0, 1.67], nose: [0, 1.64], eye: [0.035, 1.68], ear: [0.08, 1.65],
  shoulder: [0.19, 1.4], elbow: [0.36, 1.18], wrist: [0.5, 0.98], palm: [0.535, 0.93], hand: [0.56, 0.9],
  hand_tip: [0.62, 0.82], thumb: [0.53, 0.83], hip: [0.1, 0.92], knee: [0.14, 0.5], ankle: [0.17, 0.1],
  foot: [0.2, 0.03], toes: [0.26, 0],
};

function standingPose(layout) {
  const pose = layout.joints.map((joint) => {
    const side = joint.startsWith("right_") ? -1 : 1;
    const place = STANDING[joint.replace(/^(left|right)_/, "")];
    return place ? [side * place[0], place[1], 0] : null;
  });
  // A joint of another name goes a little beyond its neighbour, or to the middle if it has none.
  for (let pass = 0; pass < layout.joints.length && pose.includes(null); pass += 1) {
    for (const [a, b] of layout.edges) {
      for (const [from, to] of [[a, b], [b, a]]) {
        if (pose[from] && !pose[to]) pose[to] = [pose[from][0] * 1.15 + 0.03 * (to % 3), pose[from][1] - 0.06, 0];
      }
    }
  }
  return pose.map((place) => place ?? [0, 1, 0]);
}

// A sample's joints in one frame; null for a joint that was not seen.
function frameOf(sample, t) {
  const count = sample.layout.joints.length;
  const start = t * count * 3;
  return Array.from({ length: count }, (_, v) => {
    const joint = sample.xyz.slice(start + 3 * v, start + 3 * v + 3);
    return joint.includes(null) ? null : joint;
  });
}

const frameCount = (sample) => sample.xyz.length / (3 * sample.layout.joints.length);

function meanPose(sample) {
  const frames = Array.from({ length: frameCount(sample) }, (_, t) => frameOf(sample, t));
  const standing = standingPose(sample.layout);
  return sample.layout.joints.map((_, v) => {
    const seen = frames.map((frame) => frame[v]).filter(Boolean);
    return seen.length ? [0, 1, 2].map((axis) => seen.reduce((sum, joint) => sum + joint[axis], 0) / seen.length) : standing[v];
  });
}

// The turn about the vertical that puts the person's left on our right.
function facing(pose, joints) {
  let [across, deep] = [0, 0];
  for (const part of ["shoulder", "hip"]) {
    const [left, right] = [`left_${part}`, `right_${part}`].map((name) => pose[joints.indexOf(name)]);
    if (!left || !right) continue;
    across += left[0] - right[0];
    deep += left[2] - right[2];
  }
  return across || deep ? Math.atan2(deep, across) : 0;
}

function turn([x, y, z], yaw, pitch = 0) {
  const [u, w] = [x * Math.cos(yaw) + z * Math.sin(yaw), z * Math.cos(yaw) - x * Math.sin(yaw)];
  return [u, y * Math.cos(pitch) - w * Math.sin(pitch), w * Math.cos(pitch) + y * Math.sin(pitch)];
}

// The pose from the front, scaled into a box with y down.
function frontView(pose, joints, width, height, margin) {
  const yaw = facing(pose, joints);
  const flat = pose.map((joint) => turn(joint, yaw));
  const [xs, ys] = [flat.map((joint) => joint[0]), flat.map((joint) => joint[1])];
  const span = [Math.max(...xs) - Math.min(...xs) || 1, Math.max(...ys) - Math.min(...ys) || 1];
  const scale = Math.min((width - 2 * margin) / span[0], (height - 2 * margin) / span[1]);
  const middle = [(Math.max(...xs) + Math.min(...xs)) / 2, (Math.max(...ys) + Math.min(...ys)) / 2];
  return flat.map(([x, y]) => [width / 2 + (x - middle[0]) * scale, height / 2 - (y - middle[1]) * scale]);
}
