// Runs before the first paint, so that a remembered theme does not flash. theme: "dark", "light" or none (the system's).
try {
  const theme = localStorage.getItem("memory-engine.theme");
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
} catch {
  // storage is switched off: the system's theme it is
}
