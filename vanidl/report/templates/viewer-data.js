"use strict";
/* Slices and bins of the trace viewer as typed arrays, and what is looked up in them.
   Times are nanoseconds since the start of the job. */
const TraceData = (() => {
  const CONTINUED = 8;
  const FATES = 6;

  async function inflated(text) {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  /* Columns of whole numbers, laid out byte by byte (`viewer/pack.py`). */
  async function columns(packed) {
    const bytes = await inflated(packed.data);
    const found = {};
    let at = 0;
    for (const [name, count, width, signed, deltas] of packed.columns) {
      const values = new Float64Array(count);
      for (let plane = 0, unit = 1; plane < width; plane++, unit *= 256) {
        for (let i = 0; i < count; i++) values[i] += bytes[at++] * unit;
      }
      if (signed) for (let i = 0; i < count; i++) values[i] = values[i] % 2 ? -(values[i] + 1) / 2 : values[i] / 2;
      if (deltas) for (let i = 1; i < count; i++) values[i] += values[i - 1];
      found[name] = values;
    }
    return found;
  }

  async function texts(packed) {
    return JSON.parse(new TextDecoder().decode(await inflated(packed)));
  }

  /* The first index in [low, high) whose value is above `limit`. */
  function above(values, limit, low, high) {
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] > limit) high = middle; else low = middle + 1;
    }
    return low;
  }

  /* For each piece the latest end up to it in its track, so that ends can be searched. */
  function reaches(tracks, end) {
    const reach = new Float64Array(end.length);
    for (const track of tracks) {
      let latest = -Infinity;
      for (let i = track.low; i < track.high; i++) reach[i] = latest = Math.max(latest, end[i]);
    }
    return reach;
  }

  function owners(code) {
    const owner = new Int32Array(code.length), first = [];
    for (let i = 0; i < code.length; i++) {
      if (code[i] < CONTINUED) first.push(i);
      owner[i] = first.length - 1;
    }
    return [owner, Int32Array.from(first)];
  }

  async function bins(packed, low, high) {
    if (!packed) return null;
    const {place, busy} = await columns(packed);
    const series = new Map();
    let at = 0;
    for (const [lane, row, fate, count] of packed.series) {
      const key = `${lane},${row}`;
      if (!series.has(key)) series.set(key, []);
      series.get(key).push({
        fate, place: Int32Array.from(place.subarray(at, at + count)),
        busy: busy.subarray(at, at + count),
      });
      at += count;
    }
    return {low, high, count: packed.count, width: (high - low) / packed.count, series};
  }

  async function decode(packed) {
    const [pieces, entries, names, binned] = await Promise.all([
      columns(packed.pieces), columns(packed.entries), texts(packed.names),
      bins(packed.bins, packed.low, packed.high),
    ]);
    const code = Uint8Array.from(pieces.code);
    const end = pieces.start.map((start, i) => start + pieces.length[i]);
    const [owner, first] = owners(code);
    const tracks = [];
    let low = 0, entry = 0;
    for (const [lane, row, pieceCount, entryCount] of packed.tracks) {
      tracks.push({lane, row, low, high: low + pieceCount, entry, entries: entryCount});
      low += pieceCount;
      entry += entryCount;
    }
    return {
      low: packed.low, high: packed.high, tracks,
      whole: new Set(packed.whole), windows: packed.windows,
      byTrack: new Map(tracks.map((t) => [`${t.lane},${t.row}`, t])),
      start: pieces.start, end, code: code.map((c) => c % CONTINUED), owner, first,
      reach: reaches(tracks, end), entries, names, bins: binned, processes: packed.processes,
    };
  }

  /* Pieces of a track that end after `time`, from the first on. */
  function from(data, track, time) {
    return above(data.reach, time, track.low, track.high);
  }

  /* The piece of a track at a time, or the next one within `slack`; -1 where there is none. */
  function at(data, track, time, slack) {
    let best = -1, nearest = slack;
    for (let i = from(data, track, time - slack); i < track.high && data.start[i] <= time + slack; i++) {
      const away = Math.max(data.start[i] - time, time - data.end[i], 0);
      if (away <= nearest) { best = i; nearest = away; }
    }
    return best;
  }

  /* Whether every slice of a lane in [low, high) is here. */
  function holds(data, lane, low, high) {
    return data.whole.has(lane) || data.windows.some(([a, b]) => a <= low && high <= b);
  }

  /* An entry as a record: the slice that was cut into pieces. */
  function entry(data, index) {
    const e = data.entries, piece = data.first[index];
    let last = piece;
    while (last + 1 < data.owner.length && data.owner[last + 1] === index) last++;
    return {
      index, piece, start: data.start[piece], end: data.end[last], offset: e.offset[index],
      nbytes: e.nbytes[index], name: e.name[index] < 0 ? null : data.names[e.name[index]],
      nameCode: e.name[index], thread: e.thread[index], process: e.process[index],
      write: e.write[index] === 1,
      fates: Array.from({length: last - piece + 1}, (_, i) => [
        data.code[piece + i], data.end[piece + i] - data.start[piece + i]]),
    };
  }

  return {columns, decode, from, at, holds, entry, above, FATES};
})();
