// Pointing at a curve reads it: the moment, the estimate and its inner band, taken back from the drawing itself.
const DAYS = ['Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat', 'Sun'];

// Pairs of numbers of a path, one list for each of its pieces.
function pieces(path) {
  return path.split('M').slice(1).map((piece) => (piece.match(/[\d.-]+ [\d.-]+/g) || []).map((pair) => pair.split(' ').map(Number)));
}
function nearest(points, x) {
  return points.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
}
function hour(value) {
  const minutes = Math.round(value * 60) % 1440;
  return `${String(Math.floor(minutes / 60)).padStart(2, '0')}:${String(minutes % 60).padStart(2, '0')}`;
}
function moment(kind, value) {
  if (kind === 'hour_of_day') return hour(value);
  if (kind === 'day_of_week') return `${DAYS[Math.floor(value) % 7]} ${hour((value % 1) * 24)}`;
  if (kind === 'position') return `${(value * 100).toFixed(0)}\u00a0%`;
  return scaled(value);
}

function readCurve(svg, event) {
  const [left, right, top, floor, low, high, most] = svg.dataset.axes.split(' ').map(Number);
  const area = svg.getBoundingClientRect();
  const scale = svg.viewBox.baseVal.width / area.width;
  const line = pieces(svg.querySelector('.line').getAttribute('d')).flat();
  if (!line.length) return;
  const [x, y] = nearest(line, (event.clientX - area.left) * scale);
  const share = (down) => (floor - down) / (floor - top) * most;
  const written = (value) => (svg.dataset.share ? (value * 100).toFixed(1) : value.toFixed(2));
  const unit = svg.dataset.share ? '\u00a0%' : '';
  const band = svg.querySelector('.near');
  const around = band ? pieces(band.getAttribute('d')).flat().filter((point) => Math.abs(point[0] - x) < 0.06).map((point) => share(point[1])) : [];
  const range = around.length > 1 ? ` (${written(Math.min(...around))} to ${written(Math.max(...around))}${unit})` : '';
  const text = `${moment(svg.dataset.kind, low + (x - left) / (right - left) * (high - low))}: ${written(share(y))}${unit}${range}`;
  forget(svg);
  const middle = Math.min(Math.max(x, left + 3.5 * text.length), right - 3.5 * text.length);
  const reading = drawn('g', { class: 'reading', 'aria-hidden': 'true' });
  reading.append(
    drawn('path', { class: 'axis', d: `M${x} ${top}V${floor}` }),
    drawn('circle', { cx: x, cy: y, r: 3 }),
    drawn('text', { class: 'mark', x: middle.toFixed(1), y: top + 4, 'text-anchor': 'middle' }, text));
  svg.append(reading);
}
function forget(svg) {
  svg.querySelector('.reading')?.remove();
}

for (const svg of document.querySelectorAll('svg[data-axes]')) {
  svg.addEventListener('pointermove', (event) => readCurve(svg, event));
  svg.addEventListener('pointerdown', (event) => readCurve(svg, event));
  svg.addEventListener('pointerleave', () => forget(svg));
}
