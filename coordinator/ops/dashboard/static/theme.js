// Before the first paint: light or dark as the viewer chose, here or in Flower.
try {
  const chosen = localStorage.getItem("flower-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {}
