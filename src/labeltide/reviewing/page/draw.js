// The drawing of an item: signals, recorded labels of each annotator and, unless hidden, what the model thinks.
import { drawn, isolated, shorten } from './base.js';

const PAD = 6, HEAD = 18, SIGNAL = window.innerHeight < 1000 || window.innerWidth < 900 ? 34 : 46, STRIP = 22, RIGHT = 26, GAP = 7, AXIS = 24, TOP = 14;

function lanesOf(view, classes) {
  const lanes = view.window.signals.map((signal) => ({ kind: 'signal', values: signal.values, height: SIGNAL, head: isolated(signal.name, 48) }));
  const tracks = [...view.window.tracks].sort((a, b) => b.is_own - a.is_own);
  for (const track of tracks) {
    const who = track.annotator === null ? '' : ` by ${isolated(track.annotator, 30)}`;
    lanes.push({ kind: 'strip', values: track.recorded, height: STRIP, head: `Recorded${who}`, classes });
    if (track.is_own && track.right) lanes.push({ kind: 'right', values: track.right, height: RIGHT, head: 'Probability right, by the model' });
  }
  if (view.window.suggested) lanes.push({ kind: 'strip', values: view.window.suggested, height: STRIP, head: 'Suggested by the model', classes });
  return lanes;
}

function runs(values) {
  const found = [];
  values.forEach((value, step) => {
    const last = found[found.length - 1];
    if (last && last[2] === value) last[1] = step + 1;
    else found.push([step, step + 1, value]);
  });
  return found;
}

function linePath(values, x, y) {
  let path = '', isDown = false;
  values.forEach((value, step) => {
    if (value === null) { isDown = false; return; }
    path += `${isDown ? 'L' : 'M'}${x(step + 0.5).toFixed(1)} ${y(value).toFixed(1)}`;
    if (!isDown && (values[step + 1] === null || values[step + 1] === undefined)) path += 'h1'; // a lone point is seen too
    isDown = true;
  });
  return path;
}

export function scaled(value) {
  return Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(1) : String(Number(value.toPrecision(4)));
}

// Draws into `panel`; `chosen` are the first and last step that a decision is about.
export function drawItem(panel, view, classes, chosen, mark) {
  const width = Math.max(320, panel.clientWidth - 10);
  const lanes = lanesOf(view, classes), total = view.window.times.length;
  const height = lanes.reduce((sum, lane) => sum + HEAD + lane.height + GAP, TOP) + AXIS;
  const svg = drawn('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'Signals and labels around the item; described below' });
  const inner = width - 2 * PAD;
  const x = (step) => PAD + step / total * inner;
  let top = TOP;
  for (const lane of lanes) {
    svg.append(drawn('text', { class: 'head', x: PAD, y: top + 13 }, lane.head));
    drawLane(svg, lane, { x, top: top + HEAD, width, inner });
    top += HEAD + lane.height + GAP;
  }
  const bottom = top - GAP;
  const box = (name, [first, last]) => drawn('rect', { class: name, x: x(first).toFixed(1), y: TOP - 2, width: Math.max(2, x(last + 1) - x(first)).toFixed(1), height: bottom - TOP + 4 });
  svg.append(box('stretch', view.stretch), box('chosen', chosen));
  const at = x(mark + 0.5);
  svg.append(drawn('path', { class: 'pointer', d: `M${(at - 6).toFixed(1)} 2h12l-6 9z` }), drawn('path', { class: 'mark', d: `M${at.toFixed(1)} ${TOP}V${bottom}` }));
  drawTimes(svg, view.window.times, { x, top: bottom, width });
  panel.replaceChildren(svg);
  return (event) => {
    const frame = svg.getBoundingClientRect();
    const step = Math.floor(((event.clientX - frame.left) / frame.width * width - PAD) / inner * total);
    return Math.min(total - 1, Math.max(0, step));
  };
}

function drawLane(svg, lane, { x, top, width, inner }) {
  if (lane.kind === 'strip') { drawStrip(svg, lane, { x, top, width }); return; }
  svg.append(drawn('rect', { class: 'lane', x: PAD, y: top, width: inner, height: lane.height }));
  const known = lane.values.filter((value) => value !== null);
  const isSignal = lane.kind === 'signal';
  const low = isSignal ? Math.min(...known) : 0, high = isSignal ? Math.max(...known) : 1;
  const ends = !known.length ? 'no values here' : isSignal ? `${scaled(low)} to ${scaled(high)}` : '0 to 100 %';
  svg.append(drawn('text', { x: width - PAD - 3, y: top - 5, 'text-anchor': 'end' }, ends));
  if (!known.length) return;
  const y = (value) => top + lane.height - 3 - (high > low ? (value - low) / (high - low) : 0.5) * (lane.height - 6);
  svg.append(drawn('path', { class: lane.kind, d: linePath(lane.values, x, y) }));
}

function drawStrip(svg, lane, { x, top, width }) {
  const names = [];
  for (const [first, end, value] of runs(lane.values)) {
    if (value < 0) continue;
    const left = x(first), right = Math.min(width - PAD, x(end));
    svg.append(drawn('rect', { class: `strip c${value % 10}`, x: left.toFixed(1), y: top, width: Math.max(0.5, right - left - 0.5).toFixed(1), height: lane.height }));
    const letters = Array.from(shorten(lane.classes[value], 60));
    const room = Math.floor((right - left - 6) / 7);
    if (room < Math.min(3, letters.length)) continue;
    const fits = letters.length <= room ? letters.join('') : letters.slice(0, room - 1).join('') + '…';
    names.push(drawn('text', { class: 'inside', x: ((left + right) / 2).toFixed(1), y: top + 15, 'text-anchor': 'middle' }, '\u2068' + fits + '\u2069'));
  }
  svg.append(...names);
}

function drawTimes(svg, times, { x, top, width }) {
  const room = Math.max(2, Math.floor(width / 130)), step = Math.max(1, Math.ceil(times.length / room));
  let before = '', free = 0; // the day of the label before, and where its text ends
  for (let at = 0; at < times.length; at += step) {
    const [day, hour] = splitTime(times[at]);
    const text = hour && day === before ? hour : hour ? `${day} ${hour}` : day;
    const across = x(at + 0.5), anchor = across < 60 ? 'start' : across > width - 70 ? 'end' : 'middle';
    svg.append(drawn('path', { class: 'tick', d: `M${across.toFixed(1)} ${top}v5` }));
    const place = anchor === 'start' ? PAD : across, wide = 7 * text.length;
    const left = place - { start: 0, middle: wide / 2, end: wide }[anchor];
    if (left < free) continue;
    free = left + wide + 8;
    before = day;
    svg.append(drawn('text', { class: 'time', x: place.toFixed(1), y: top + 18, 'text-anchor': anchor }, text));
  }
}

// A day and an hour where the time is written so; else the time as it is.
function splitTime(time) {
  const found = /^(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2})(:\d{2}(\.\d+)?)?/.exec(String(time));
  return found ? [found[1], found[2]] : [shorten(time ?? '', 14), ''];
}
