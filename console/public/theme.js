// Before the first paint: the theme that was chosen here, else the system's.
try {
  const chosen = localStorage.getItem("redrive-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage is off: the system's theme it is.
}
