"use strict";
/* Amounts over time in ever wider bins: the level that fits the zoom is drawn. */
const Levels = (() => {
  const decoded = new Map();

  /* The finest bins: little-endian whole numbers of `bytes` bytes each, exact up to 2^53. */
  function finest(packed) {
    const text = atob(packed.data), size = packed.bytes;
    const values = new Float64Array(text.length / size);
    for (let i = 0; i < values.length; i++) {
      let value = 0;
      for (let b = size - 1; b >= 0; b--) value = value * 256 + text.charCodeAt(i * size + b);
      values[i] = value;
    }
    return values;
  }

  /* The amounts of a level, each the sum of neighbours of the level before. */
  function numbers(packed, index) {
    if (!decoded.has(packed)) decoded.set(packed, [finest(packed)]);
    const known = decoded.get(packed);
    while (known.length <= index) {
      const last = known[known.length - 1];
      known.push(Float64Array.from({length: last.length / 2}, (_, i) => last[2 * i] + last[2 * i + 1]));
    }
    return known[index];
  }

  /* The finest level whose bins, in this range, are at least a pixel wide; else the coarsest. */
  function fitting(levels, range, pixels) {
    const length = levels.end - levels.start;
    const share = length > 0 ? Math.abs(range[1] - range[0]) / length : 1;
    const found = levels.bins.findIndex((bins) => bins * share <= pixels);
    return found < 0 ? levels.bins.length - 1 : found;
  }

  function rows(values, bins, scale) {
    const lines = [];
    for (let at = 0; at < values.length; at += bins) {
      lines.push(Array.from(values.subarray(at, at + bins), (v) => v > 0 ? v * scale : null));
    }
    return lines;
  }

  /* Draws a level into the traces of a spec; the width of its bins in seconds. */
  function fill(traces, levels, index) {
    const bins = levels.bins[index];
    const width = (levels.end - levels.start) / bins;
    const scale = 1 / (width * levels.divisor);
    levels.series.forEach((packed, i) => {
      const values = numbers(packed, index), trace = traces[i];
      trace.dx = width;
      if (trace.type === "heatmap") {
        trace.x0 = levels.start + width / 2;
        trace.z = rows(values, bins, scale);
        trace.zmax = values.reduce((a, b) => Math.max(a, b), 0) * scale;
      } else {
        trace.x0 = levels.start;
        trace.y = [...Array.from(values, (v) => v * scale), 0];
      }
    });
    return width;
  }

  return {fitting, fill, numbers};
})();
