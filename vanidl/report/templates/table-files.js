"use strict";
/* Tables as files for other programs, and as text for a ticket. */
const TableFiles = (() => {
  const value = (cell) => Array.isArray(cell) ? cell[0] : cell;
  const text = (cell) => cell === null ? "not recorded" : Array.isArray(cell) ? cell[1] : cell;

  function quoted(field) {
    return /[",\r\n]/.test(field) ? `"${field.replaceAll('"', '""')}"` : field;
  }

  /* A field that a spreadsheet takes for a formula gets an apostrophe before it. */
  function field(cell) {
    const found = value(cell);
    if (found === null) return "";
    return typeof found === "number" ? String(found) : quoted(/^[=+\-@\t\r]/.test(found) ? `'${found}` : found);
  }

  function csv(columns, rows) {
    const lines = [columns.map((c) => quoted(c[0])), ...rows.map((row) => row.map(field))];
    return lines.map((line) => line.join(",")).join("\r\n") + "\r\n";
  }

  function json(columns, rows) {
    return JSON.stringify(rows.map((row) => Object.fromEntries(row.map((cell, i) => [columns[i][0], value(cell)]))), null, 1);
  }

  function markdown(columns, rows) {
    const escaped = (words) => String(words).replace(/([\\|`<>*_[\]])/g, "\\$1").replace(/\s+/g, " ");
    const line = (cells) => `| ${cells.join(" | ")} |`;
    return [line(columns.map((c) => escaped(c[0]))), line(columns.map((c) => c[1] ? "---" : "---:")),
      ...rows.map((row) => line(row.map((cell) => escaped(text(cell)))))].join("\n") + "\n";
  }

  function save(name, kind, content) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], {type: kind}));
    link.download = name.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") + "." + kind.split("/")[1];
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function copy(content) {
    if (navigator.clipboard) return navigator.clipboard.writeText(content);
    return Promise.reject(new Error("this browser gives no access to the clipboard"));
  }

  /* Buttons for what is shown of a table: `shown` gives its rows. */
  function buttons(title, columns, shown, make) {
    const saved = (kind, content) => () => save(title, kind, content(columns, shown()));
    const words = make("copy as Markdown", () => copy(markdown(columns, shown())).then(
      () => { words.textContent = "copied"; }, () => { words.textContent = "could not copy"; }));
    return [make("CSV", saved("text/csv", csv)), make("JSON", saved("application/json", json)), words];
  }

  return {buttons, save, csv, json, markdown};
})();
