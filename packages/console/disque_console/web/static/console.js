// Keeps a page up to date. Without it, pages and forms still work.
"use strict";

// Turns `old` into `fresh`, but keeps the focus, field contents and open sections.
function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || keyOf(old) !== keyOf(fresh)) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  if (old.isEqualNode(fresh)) return;
  if (old.matches("input, select, textarea, form") && old.contains(document.activeElement)) return;
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.matches("input, select, textarea, .readout")) return;
  morphChildren(old, fresh);
}

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null;
}

function morphChildren(old, fresh) {
  const keyed = new Map();
  for (const child of old.children) {
    if (child.hasAttribute("data-key")) keyed.set(child.getAttribute("data-key"), child);
  }
  let at = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const key = keyOf(child);
    const same = key === null ? null : keyed.get(key);
    if (same && same !== at) old.insertBefore(same, at);
    const mine = same || at;
    if (!mine || (key !== null && !same)) {
      old.insertBefore(child, at);
      continue;
    }
    const next = mine.nextSibling;
    morph(mine, child);
    at = next;
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

const live = document.getElementById("live");
const stale = document.getElementById("stale");
const over = document.getElementById("over");
const full = document.getElementById("full");
let stream = null;

function follow() {
  if (stream || document.hidden || !live || !document.querySelector("main[data-live]")) return;
  stream = new EventSource(location.pathname + location.search);
  stream.onmessage = (event) => {
    const fresh = new DOMParser().parseFromString(JSON.parse(event.data).html, "text/html").body;
    const focused = document.activeElement;
    morphChildren(live, fresh);
    // Moving an element takes the focus away from it.
    if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
    stale.hidden = over.hidden = full.hidden = true;
  };
  // After a response that is not a stream, such as 204 without a session, browsers do not try again.
  stream.onerror = () => {
    const ended = stream.readyState === EventSource.CLOSED;
    stale.hidden = ended;
    over.hidden = !ended;
  };
  stream.addEventListener("gone", rest);
  stream.addEventListener("full", () => { rest(); full.hidden = false; });
}

function rest() {
  if (stream) stream.close();
  stream = null;
}

document.addEventListener("visibilitychange", () => (document.hidden ? rest() : follow()));
addEventListener("pagehide", rest);
addEventListener("pageshow", follow);
follow();

// Show the values under the mouse below the chart.
document.addEventListener("pointerover", (event) => {
  const band = event.target.closest && event.target.closest(".band");
  const chart = event.target.closest && event.target.closest(".chart");
  if (!band || !chart) return;
  chart.querySelector(".readout").textContent = band.querySelector("title").textContent;
});

// Open the <details> that a link points to.
function unfold() {
  const part = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (part && part.nodeName === "DETAILS") part.open = true;
}
addEventListener("hashchange", unfold);
unfold();

// An action may take a while: ignore further clicks.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post") return;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "yes";
});
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
});

// Continue a bulk action round by round; without JavaScript there is a button for it.
async function goOn() {
  for (;;) {
    const form = document.querySelector("form[data-goes-on]");
    if (!form) return;
    const fields = new URLSearchParams(new FormData(form));
    fields.set("round", "short");
    let text = "";
    try {
      const answer = await fetch(form.action, { method: "POST", body: fields });
      if (!answer.ok) return;
      text = await answer.text();
    } catch {
      return; // no answer, or the page was left: the button is still there
    }
    const fresh = new DOMParser().parseFromString(text, "text/html").querySelector("main");
    if (fresh) morphChildren(document.querySelector("main"), fresh);
  }
}
goOn();
