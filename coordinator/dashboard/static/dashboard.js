// All pages work without this file. It shows instants in the viewer's time zone, opens acts in a dialog, draws charts,
// says whether the page is live, and knows some keys.
"use strict";

const local = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

function dress(within) {
  for (const time of within.querySelectorAll("time:not(.ago)")) time.textContent = local.format(new Date(time.dateTime));
  within.querySelectorAll(".chart:not([data-drawn])").forEach(draw);
}

// Charts: the server says series as JSON at data-src; without this script its own small picture stays.
async function draw(place) {
  place.dataset.drawn = "";
  const answer = await fetch(place.dataset.src, { headers: { Accept: "application/json" } });
  if (!answer.ok) return;
  const { labels, columns } = await answer.json();
  const style = getComputedStyle(place), ink = style.getPropertyValue("--muted"), grid = style.getPropertyValue("--edge");
  const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
  const series = labels.map(([label, kind]) => ({
    label, width: 2, stroke: style.getPropertyValue(`--${kind}`), points: { show: false },
  }));
  place.replaceChildren();
  const size = () => ({ width: place.clientWidth, height: 180 });
  const chart = new uPlot({ ...size(), series: [{}, ...series], axes: [axis, { ...axis, size: 44 }] }, columns, place);
  new ResizeObserver(() => chart.setSize(size())).observe(place);
}

// The form of an act opens above the page.
const dialog = document.getElementById("dialog");
document.addEventListener("htmx:after:swap", event => {
  dress(document);
  if (dialog.querySelector("#act") && !dialog.open) dialog.showModal();
});
dialog.addEventListener("close", () => dialog.replaceChildren());
document.addEventListener("click", event => {
  if (event.target === dialog || (dialog.open && event.target.closest("[data-close], .done ~ p a"))) {
    event.preventDefault();
    dialog.close();
  }
});

// Filters apply themselves.
for (const form of document.querySelectorAll("form[data-auto]")) {
  form.addEventListener("change", event => event.target.matches("select") && form.requestSubmit());
}

// Whether the page is live.
const pulse = document.querySelector("[data-pulse]");
const says = words => { pulse.hidden = false; pulse.textContent = words; pulse.classList.toggle("off", words !== "live"); };
document.addEventListener("htmx:sse:after:connection", () => says("live"));
document.addEventListener("htmx:sse:error", () => says("offline"));
document.addEventListener("htmx:sse:close", () => says("offline"));
document.addEventListener("visibilitychange", () => document.hidden && says("paused"));

// Light, dark, as the system.
const themes = document.querySelector("[data-theme-switch]");
themes.hidden = false;
themes.addEventListener("click", () => {
  const root = document.documentElement, next = { undefined: "light", light: "dark", dark: undefined }[root.dataset.theme];
  if (next) root.dataset.theme = next; else delete root.dataset.theme;
  try { localStorage.setItem("flower-theme", next || "system"); } catch {}
});

// Keys: / searches, g and a letter goes to a page of the bar, Escape leaves a field.
let going = 0;
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select, textarea")) return event.key === "Escape" && event.target.blur();
  if (event.key === "/") { event.preventDefault(); return document.querySelector(".find input").focus(); }
  if (event.key === "g") { going = Date.now(); return; }
  if (Date.now() - going < 1500) {
    const links = [...document.querySelectorAll("nav a:not(.elsewhere)")];
    links.find(link => link.textContent.trim().toLowerCase().startsWith(event.key.toLowerCase()))?.click();
  }
  going = 0;
});

dress(document);
