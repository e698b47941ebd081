"use strict";
/* Numbers as people read them: the same text as vanidl/formatting/units.py gives. */
const Units = (() => {
  const NAMES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  const SMALL = [[1e9, "ns"], [1e6, "\u00b5s"], [1e3, "ms"]];

  /* Three significant digits, and zeros at the end kept: 8.30, 12.0, 1,480. */
  function threeDigits(value) {
    if (value < 999.5) return value.toPrecision(3);
    return Number(value.toPrecision(3)).toLocaleString("en");
  }

  /* Whether it is a whole number, but for what binary fractions are off. */
  function whole(value) {
    return Math.abs(value - Math.round(value)) <= 1e-9 * value;
  }

  function seconds(value) {
    if (value === 0) return "0 s";
    if (value < 0) return `-${seconds(-value)}`;
    if (value < .5e-9) return "< 1 ns";
    if (value >= 7195) return hours(value);
    const [scale, name] = SMALL.find(([s]) => value < .9995 && value * s < 999.5) || [1, "s"];
    return `${threeDigits(value * scale)} ${name}`;
  }

  function hours(value) {
    const minutes = Math.round(value / 60);
    if (minutes > 999) return `${threeDigits(value / 3600)} h`;
    return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  }

  function bytes(value) {
    let power = 0, amount = value;
    while (amount >= 1023.5 && power + 1 < NAMES.length) { amount /= 1024; power++; }
    if (!power && amount > 0 && amount < .5) return "< 1 B";
    const plain = !power || (whole(amount) && amount < 999.5);
    return `${plain ? Math.round(amount).toLocaleString("en") : threeDigits(amount)} ${NAMES[power]}`;
  }

  return {seconds, bytes};
})();
