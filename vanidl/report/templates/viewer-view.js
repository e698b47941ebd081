"use strict";
/* What of a run the trace viewer shows: lanes laid out, the time in view, and the picture. */
const TraceView = (() => {
  const ROW = 17, SUBROW = 9, LANE_GAP = 4, RANK_GAP = 10, RANK_HEAD = 17;
  const GUTTER = 124, NARROW = 620, AXIS = 22, BANDWIDTH = 56;
  const SHORTEST = 200;  // nanoseconds that can fill the picture

  function seconds(ns) { return Units.seconds(ns / 1e9); }

  /* A time with as many digits as tell `step` apart. */
  function instant(ns, step) {
    const digits = Math.max(0, Math.ceil(-Math.log10(Math.max(step, 1) / 1e9)));
    return (ns / 1e9).toFixed(Math.min(digits, 9));
  }

  function niceStep(length, most) {
    const raw = length / Math.max(most, 1), unit = 10 ** Math.floor(Math.log10(raw));
    return [1, 2, 5, 10].map((m) => m * unit).find((s) => s >= raw);
  }

  /* Boxes of all tracks of the shown ranks, and where ranks and lanes have their names. */
  function layout(packed, rows, rank, narrow) {
    const boxes = [], names = [];
    const many = Object.keys(packed.ranks).length > 1;
    let y = 0, last = null;
    packed.lanes.forEach((lane, index) => {
      if (rank !== null && String(lane.rank) !== rank) return;
      if (lane.rank !== last) {
        if (last !== null) y += RANK_GAP;
        if (many) { names.push({y, text: packed.ranks[lane.rank], head: true}); y += RANK_HEAD; }
        last = lane.rank;
      }
      if (narrow) y += 12;
      names.push({y, text: lane.label, head: false, height: ROW});
      for (let row = 0; row < rows[index]; row++) {
        const height = row ? SUBROW : ROW;
        boxes.push({y, height, key: `${index},${row}`, lane: {...lane, index}});
        y += height + 1;
      }
      y += LANE_GAP;
    });
    return {boxes, names, height: y + 4};
  }

  /* How many rows each lane has, at least one. */
  function rowsOf(packed, data) {
    const rows = packed.lanes.map(() => 1);
    const meet = (lane, row) => { rows[lane] = Math.max(rows[lane], row + 1); };
    for (const track of data.tracks) meet(track.lane, track.row);
    if (data.bins) for (const key of data.bins.series.keys()) meet(...key.split(",").map(Number));
    return rows;
  }

  function within(low, high, data) {
    const whole = data.high - data.low;
    const length = Math.min(Math.max(high - low, SHORTEST), whole);
    low = Math.min(Math.max(low, data.low), data.high - length);
    return {low, high: low + length};
  }

  /* Bandwidth over time as areas, in the level that fits. */
  function drawBandwidth(context, series, view, box, colours) {
    if (!series) return 0;
    const bins = series.read.length, width = (series.high - series.low) / bins;
    const scale = box.width / (view.high - view.low);
    const sums = [new Float64Array(box.width), new Float64Array(box.width)];
    const first = Math.max(Math.floor((view.low - series.low) / width), 0);
    const last = Math.min(Math.ceil((view.high - series.low) / width), bins);
    for (let i = first; i < last; i++) {
      if (!series.read[i] && !series.written[i]) continue;
      const a = (series.low + i * width - view.low) * scale, b = a + width * scale;
      const low = Math.max(Math.floor(a), 0), high = Math.min(Math.floor(b), box.width - 1);
      for (let x = low; x <= high; x++) {
        const share = Math.max(Math.min(b, x + 1) - Math.max(a, x), 0) / (b - a);
        sums[0][x] += share * series.read[i];
        sums[1][x] += share * series.written[i];
      }
    }
    let most = 0;
    for (let x = 0; x < box.width; x++) most = Math.max(most, sums[0][x] + sums[1][x]);
    if (!most) return 0;
    sums.forEach((sum, k) => {
      context.fillStyle = colours[k];
      for (let x = 0; x < box.width; x++) {
        const under = k ? sums[0][x] : 0;
        if (!sum[x]) continue;
        const foot = box.height * (1 - under / most), top = box.height * (1 - (under + sum[x]) / most);
        context.fillRect(box.x + x, box.y + top, 1, Math.max(foot - top, .5));
      }
    });
    return most * scale * 1e9;  // bytes per second of the tallest column
  }

  function drawAxis(context, view, box, ink, faint) {
    const length = view.high - view.low, step = niceStep(length, box.width / (90 * box.ratio));
    context.font = `${11 * box.ratio}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    const ticks = [];
    for (let at = Math.ceil(view.low / step) * step; at <= view.high; at += step) {
      const x = box.x + (at - view.low) / length * box.width;
      context.fillStyle = faint;
      context.fillRect(Math.round(x), box.y, 1, box.height);
      context.fillStyle = ink;
      const text = `${instant(at, step)} s`;
      if (x + context.measureText(text).width + 4 < box.x + box.width) context.fillText(text, x + 3 * box.ratio, box.y + AXIS * box.ratio / 2);
      ticks.push(x);
    }
    return ticks;
  }

  return {
    seconds, instant, layout, rowsOf, within, drawBandwidth, drawAxis,
    GUTTER, NARROW, AXIS, BANDWIDTH, SHORTEST,
  };
})();
