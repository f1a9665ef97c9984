// How a timeline is drawn: lanes of one width, steps evenly spaced, from step `from` up to step `to`.
const SIGNAL = 54, STRIP = 20, RIGHT = 44, HEAD = 18, GAP = 8, FLAG = 8, AXIS = 24, OVERVIEW = 26, PAD = 4;

function lanesOf(timeline) {
  const lanes = timeline.signals.map((signal) => ({ kind: 'signal', signal, height: SIGNAL, head: isolated(signal.name, 48) }));
  for (const track of timeline.tracks) {
    const who = track.annotator < 0 ? '' : ` by ${isolated(words.annotator[track.annotator], 30)}`;
    lanes.push({ kind: 'strip', values: track.recorded, issues: track.issues, height: STRIP, room: FLAG, head: `Recorded${who}` });
    lanes.push({ kind: 'right', values: track.right, height: RIGHT, head: 'Probability that it is right' });
  }
  lanes.push({ kind: 'strip', values: timeline.suggested, issues: [], height: STRIP, head: 'Suggested' });
  return lanes;
}

// Runs of equal values within the view: [first, end, value].
function runs(values, from, to) {
  const found = [];
  for (let step = from; step < to; step++) {
    const last = found[found.length - 1];
    if (last && last[2] === values[step]) last[1] = step + 1;
    else found.push([step, step + 1, values[step]]);
  }
  return found;
}

function linePath(values, from, to, x, y) {
  let path = '', isDown = false;
  for (let step = from; step < to; step++) {
    if (values[step] < 0) { isDown = false; continue; }
    path += `${isDown ? 'L' : 'M'}${x(step + 0.5).toFixed(1)} ${y(values[step] / 1000).toFixed(1)}`;
    if (!isDown && (step + 1 >= to || values[step + 1] < 0)) path += 'h1'; // a lone point is seen too
    isDown = true;
  }
  return path;
}

function drawTimeline(timeline, view, width) {
  const lanes = lanesOf(timeline);
  const total = timeline.times.length;
  const height = lanes.reduce((sum, lane) => sum + HEAD + (lane.room || 0) + lane.height + GAP, PAD) + AXIS + OVERVIEW + GAP;
  const svg = drawn('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'Signals, recorded and suggested labels over time' });
  const inner = width - 2 * PAD;
  const x = (step) => PAD + (step - view.from) / (view.to - view.from) * inner;
  const from = Math.max(0, Math.floor(view.from)), to = Math.min(total, Math.ceil(view.to));
  let top = PAD;
  for (const lane of lanes) {
    svg.append(drawn('text', { class: 'head', x: PAD, y: top + 13 }, lane.head));
    top += HEAD + (lane.room || 0);
    drawLane(svg, lane, { from, to, x, top, width, inner });
    top += lane.height + GAP;
  }
  if (view.stretch) {
    const [left, right] = view.stretch.map((step) => Math.min(width - PAD, Math.max(PAD, x(step))));
    svg.append(drawn('rect', { class: 'stretch', x: left.toFixed(1), y: PAD, width: Math.max(0, right - left).toFixed(1), height: top - GAP - PAD }));
  }
  for (const step of timeline.gaps) {
    if (step > view.from && step < view.to) svg.append(drawn('path', { class: 'gap', d: `M${x(step).toFixed(1)} ${PAD + HEAD}V${top - GAP}` }));
  }
  if (view.cursor >= from && view.cursor < to) {
    svg.append(drawn('path', { class: 'cursor', d: `M${x(view.cursor + 0.5).toFixed(1)} ${PAD + HEAD}V${top - GAP + 4}` }));
  }
  drawTimes(svg, timeline.times, { from, to, x, top: top - GAP, width });
  drawOverview(svg, timeline, view, { top: top + AXIS, inner, total });
  return svg;
}

function drawLane(svg, lane, { from, to, x, top, width, inner }) {
  const ends = (low, high) => {
    svg.append(drawn('text', { x: width - PAD - 3, y: top - 5, 'text-anchor': 'end' }, `${low} to ${high}`));
  };
  if (lane.kind !== 'strip') {
    svg.append(drawn('rect', { class: 'lane', x: PAD, y: top, width: inner, height: lane.height }));
    const y = (share) => top + lane.height - 2 - share * (lane.height - 4);
    if (lane.kind === 'signal') ends(scaled(lane.signal.low), scaled(lane.signal.high));
    else {
      ends('0', '100 %');
      svg.append(drawn('path', { class: 'grid', d: `M${PAD} ${y(0.5).toFixed(1)}h${inner}` }));
    }
    const values = lane.kind === 'signal' ? lane.signal.values : lane.values;
    svg.append(drawn('path', { class: lane.kind, d: linePath(values, from, to, x, y) }));
    return;
  }
  const blocks = new Map(); // one path for each class: thousands of rectangles would be slow
  const names = [];
  for (const [first, end, value] of runs(lane.values, from, to)) {
    if (value < 0) continue;
    const left = Math.max(PAD, x(first)), right = Math.min(width - PAD, x(end));
    const wide = Math.max(0.5, right - left).toFixed(1);
    blocks.set(value, `${blocks.get(value) || ''}M${left.toFixed(1)} ${top}h${wide}v${lane.height}h-${wide}z`);
    const letters = Array.from(shorten(words.class[value], 60));
    const room = Math.floor((right - left - 6) / 7);
    if (room < Math.min(4, letters.length)) continue;
    const fits = letters.length <= room ? letters.join('') : letters.slice(0, room - 1).join('') + '…';
    names.push(drawn('text', { class: 'inside', x: ((left + right) / 2).toFixed(1), y: top + 14, 'text-anchor': 'middle' }, '\u2068' + fits + '\u2069'));
  }
  for (const [value, path] of blocks) svg.append(drawn('path', { class: `strip c${value % 10}`, d: path }));
  svg.append(...names);
  const half = Math.min(4, Math.max(1, inner / (to - from) / 2));
  const flags = lane.issues.filter((step) => step >= from && step < to);
  const path = flags.map((step) => `M${(x(step + 0.5) - half).toFixed(1)} ${top - 6}h${(2 * half).toFixed(1)}l${(-half).toFixed(1)} 7z`).join('');
  if (path) svg.append(drawn('path', { class: 'flag', d: path }));
}

function drawTimes(svg, times, { from, to, x, top, width }) {
  const room = Math.max(2, Math.floor(width / 130));
  const step = Math.max(1, Math.ceil((to - from) / room));
  let before = '', free = 0; // the day of the label before, and where its text ends
  for (let at = Math.ceil(from / step) * step; at < to; at += step) {
    const [day, hour] = splitTime(times[at]);
    const text = hour && day === before ? hour : hour ? `${day} ${hour}` : day;
    const across = x(at + 0.5);
    if (across < 0) continue;
    const anchor = across < 60 ? 'start' : across > width - 70 ? 'end' : 'middle';
    svg.append(drawn('path', { class: 'tick', d: `M${across.toFixed(1)} ${top}v5` }));
    const position = anchor === 'start' ? Math.max(PAD, across - 20) : across;
    const wide = 7 * text.length;
    const left = position - { start: 0, middle: wide / 2, end: wide }[anchor];
    if (left < free) continue;
    free = left + wide + 8;
    before = day;
    svg.append(drawn('text', { x: position.toFixed(1), y: top + 18, 'text-anchor': anchor }, text));
  }
}

// A day and an hour where the time is written so; else the time as it is.
function splitTime(time) {
  const found = /^(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2})(:\d{2}(\.\d+)?)?/.exec(String(time));
  return found ? [found[1], found[2]] : [shorten(typeof time === 'number' ? scaled(time) : time, 14), ''];
}

function scaled(value) {
  return Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(1) : String(Number(value.toPrecision(4)));
}

function drawOverview(svg, timeline, view, { top, inner, total }) {
  const x = (step) => PAD + step / total * inner;
  svg.append(drawn('rect', { class: 'lane overview', x: PAD, y: top, width: inner, height: OVERVIEW }));
  const flags = [...new Set(timeline.tracks.flatMap((track) => track.issues))];
  const wide = Math.max(0.6, inner / total).toFixed(1);
  svg.append(drawn('path', { class: 'flag', d: flags.map((step) => `M${x(step).toFixed(1)} ${top + 5}h${wide}v${OVERVIEW - 10}h-${wide}z`).join('') }));
  svg.append(drawn('rect', { class: 'window', x: x(view.from).toFixed(1), y: top, width: Math.max(3, x(view.to) - x(view.from)).toFixed(1), height: OVERVIEW }));
}
