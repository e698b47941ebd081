"use strict";
/* Draws lanes of slices into pixels. A slice narrower than a pixel and a half adds to what its
   columns were busy, so that the work is bounded by pixels, and colour stays in proportion. */
const TraceDraw = (() => {
  const WIDE = 1.5;
  const FATES = TraceData.FATES;
  const LABEL_FROM = 26;
  const LETTER = 6.2;

  function packedColour(text) {
    const n = parseInt(text.slice(1), 16);
    return (255 << 24 | (n & 255) << 16 | (n >> 8 & 255) << 8 | n >> 16) >>> 0;
  }

  /* Black or white, whichever reads better on a colour. */
  function inkOn(colour) {
    const [r, g, b] = [1, 3, 5].map((i) => (parseInt(colour.slice(i, i + 2), 16) / 255) ** 2.2);
    return .2126 * r + .7152 * g + .0722 * b > .18 ? "#101418" : "#ffffff";
  }

  /* Whether a pixel lies on a line of a hatch. */
  const HATCHES = {
    "/": (x, y) => (x + y) % 6 === 0,
    "x": (x, y) => (x + y) % 6 === 0 || (x - y + 6000) % 6 === 0,
    ".": (x, y) => x % 4 === 0 && y % 4 === 0,
    "-": (x, y) => y % 4 === 0,
    "|": (x) => x % 5 === 0,
  };

  /* Pixels of a canvas; rectangles and columns are cut to its bounds. */
  class Raster {
    constructor(width, height, paper) {
      this.width = width;
      this.height = height;
      this.image = new ImageData(Math.max(width, 1), Math.max(height, 1));
      this.pixels = new Uint32Array(this.image.data.buffer);
      this.paper = packedColour(paper);
      this.busy = new Float32Array(Math.max(width, 1) * FATES);
      this.used = new Uint8Array(Math.max(width, 1));
      this.marks = [];
    }

    clear() { this.pixels.fill(this.paper); }

    rectangle(x0, x1, y0, y1, fill) {
      x0 = Math.max(x0, 0); x1 = Math.min(x1, this.width);
      y0 = Math.max(y0, 0); y1 = Math.min(y1, this.height);
      const {colour, hatch} = fill;
      for (let y = y0; y < y1; y++) {
        const row = y * this.width;
        this.pixels.fill(colour, row + x0, row + Math.max(x1, x0));
        if (hatch) for (let x = x0; x < x1; x++) if (hatch(x, y)) this.pixels[row + x] = this.paper;
      }
    }

    /* A share of time from `a` to `b`, in pixels, that was busy. */
    add(a, b, fate, amount) {
      const low = Math.max(Math.floor(a), 0), high = Math.min(Math.floor(b), this.width - 1);
      if (low > high) return;
      if (low === high || b <= a) {
        this.busy[low * FATES + fate] += amount;
        this.used[low] = 1;
        return;
      }
      const density = amount / (b - a);
      for (let x = low; x <= high; x++) {
        const share = Math.min(b, x + 1) - Math.max(a, x);
        if (share <= 0) continue;
        this.busy[x * FATES + fate] += share * density;
        this.used[x] = 1;
      }
    }

    /* Columns of what was added since the last call, in proportion, of at least a pixel. */
    columns(y0, height, fills) {
      for (let x = 0; x < this.width; x++) {
        if (!this.used[x]) continue;
        this.used[x] = 0;
        let sum = 0, foot = y0 + height, top = 0;
        for (let f = 0; f < FATES; f++) sum += this.busy[x * FATES + f];
        const scale = height / Math.max(sum, 1);
        for (let f = 0; f < FATES; f++) {
          const share = this.busy[x * FATES + f];
          if (!share) continue;
          this.busy[x * FATES + f] = 0;
          top += share * scale;
          const y = Math.min(y0 + height - Math.max(Math.round(top), 1), foot - 1);
          this.rectangle(x, x + 1, Math.max(y, y0), foot, fills[f]);
          foot = y;
        }
      }
    }
  }

  /* Colours of a scheme: of each fate, of each kind of lane, and of what lies around. */
  function scheme(palette, recoloured) {
    const fill = ([colour, hatch]) => ({
      colour: packedColour(recoloured(colour)), hatch: HATCHES[hatch], ink: inkOn(recoloured(colour))});
    const whole = (colour) => Array(FATES).fill(fill([colour, ""]));
    const busy = fill([palette.busy, ""]);
    return {
      fates: palette.fates.map((f) => fill([f.colour, f.hatch])),
      operations: [fill([palette.read, ""]), fill([palette.write, "/"]), busy, busy, busy, busy],
      kinds: Object.fromEntries(Object.entries(palette.kinds).map(([k, c]) => [k, whole(c)])),
      match: fill([palette.match, ""]),
    };
  }

  function fillsOf(look, lane, state) {
    if (lane.kind !== "io") return look.kinds[lane.kind];
    return state.byFate ? look.fates : look.operations;
  }

  function drawBins(raster, bins, key, view, scale, skip) {
    for (const {fate, place, busy} of bins.series.get(key) || []) {
      const first = Math.floor((view.low - bins.low) / bins.width);
      let i = TraceData.above(place, first - 1, 0, place.length);
      for (; i < place.length; i++) {
        const start = bins.low + place[i] * bins.width, end = start + bins.width;
        if (start >= view.high) break;
        if (skip && skip(start, end)) continue;
        raster.add((start - view.low) * scale, (end - view.low) * scale, fate, busy[i] * scale);
      }
    }
  }

  /* Slices of a track; returns how many. Those of the file that is looked for are marked. */
  function drawSlices(raster, data, track, box, view, scale, state, labels) {
    const {start, end, code, owner, entries} = data;
    const {lane, look} = box, fills = fillsOf(look, lane, state);
    const byWrite = lane.kind === "io" && !state.byFate;
    const match = lane.kind === "io" ? state.matchCode(data) : -1;
    let drawn = 0, last = -1; // an operation may be in pieces, each with a fate of its own
    for (let i = TraceData.from(data, track, view.low); i < track.high && start[i] < view.high; i++) {
      const a = (start[i] - view.low) * scale, b = (end[i] - view.low) * scale;
      const slot = byWrite ? entries.write[owner[i]] : code[i];
      if (owner[i] !== last) drawn++;
      last = owner[i];
      if (match >= 0 && entries.name[owner[i]] === match) {
        raster.marks.push([Math.floor(a), Math.max(Math.ceil(b), Math.floor(a) + 2)]);
      } else if (b - a < WIDE) {
        raster.add(a, b, slot, Math.max(b - a, 1e-3));
      } else {
        const left = Math.max(Math.round(a), 0);
        const right = Math.min(Math.max(Math.round(b), left + 1), raster.width);
        const gap = right - left > 3 && right < raster.width ? 1 : 0;
        raster.rectangle(left, right - gap, box.y, box.y + box.height, fills[slot]);
        if (right - left >= labels.from) labels.add(data, i, left, right, box, fills[slot].ink);
      }
    }
    return drawn;
  }

  /* One track: slices where they are all held, else what was busy in each bin. */
  function drawTrack(raster, data, box, view, state, labels) {
    const {lane, key, look} = box, scale = raster.width / (view.high - view.low);
    const track = data.byTrack.get(key);
    let drawn = 0;
    if (TraceData.holds(data, lane.index, view.low, view.high) || !data.bins) {
      if (track) drawn = drawSlices(raster, data, track, box, view, scale, state, labels);
    } else {
      const near = data.bins.width * scale >= 2 && data.windows.length > 0;
      const inside = (a, b) => data.windows.some(([low, high]) => a < high && b > low);
      drawBins(raster, data.bins, key, view, scale, near ? inside : null);
      if (near && track) drawn = drawSlices(raster, data, track, box, view, scale, state, labels);
    }
    raster.columns(box.y, box.height, fillsOf(look, lane, state));
    for (const [left, right] of raster.marks.splice(0)) {
      raster.rectangle(left, right, box.y, box.y + box.height, look.match);
    }
    return drawn;
  }

  /* Labels in wide slices, at most as many as fit. */
  class Labels {
    constructor(ratio) {
      this.from = LABEL_FROM * ratio;
      this.ratio = ratio;
      this.found = [];
    }

    add(...label) { this.found.push(label); }

    write(context, textOf) {
      context.font = `${10.5 * this.ratio}px system-ui, sans-serif`;
      context.textBaseline = "middle";
      for (const [data, piece, left, right, box, ink] of this.found) {
        if (box.height < 11 * this.ratio) continue;
        const room = Math.floor((right - left - 6 * this.ratio) / (LETTER * this.ratio));
        let text = textOf(data, box.lane, data.owner[piece]);
        if (text.length > room) text = room > 3 ? "\u2026" + text.slice(1 - room) : "";
        if (!text) continue;
        context.fillStyle = ink;
        context.fillText(text, left + 3 * this.ratio, box.y + box.height / 2 + .5);
      }
    }
  }

  return {Raster, Labels, scheme, drawTrack, packedColour};
})();
