"use strict";
/* Text to copy, parts of the bar that lead to their proof, and details that an address opens. */
(() => {
  function selected(node) {
    const range = document.createRange();
    range.selectNodeContents(node);
    const selection = window.getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
  }

  function said(button, text) {
    const before = button.textContent;
    button.textContent = text;
    setTimeout(() => { button.textContent = before; }, 1500);
  }

  /* Where the clipboard is not ours to write, the text is selected for the reader to copy. */
  function copy(button) {
    const text = button.parentElement.querySelector("pre");
    const failed = () => { selected(text); said(button, "selected"); };
    if (!navigator.clipboard) return failed();
    return navigator.clipboard.writeText(text.textContent).then(() => said(button, "copied"), failed);
  }

  /* What an address names may lie in details that are closed. */
  function reveal() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    const inside = target.querySelector(":scope > details");
    for (let node = inside || target; node; node = node.parentElement) {
      if (node.tagName === "DETAILS") node.open = true;
    }
    target.scrollIntoView();
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) copy(button);
    const part = event.target.closest("[data-href]");
    if (part) location.hash = part.dataset.href;
  });
  window.addEventListener("hashchange", reveal);
  if (location.hash) reveal();
})();
