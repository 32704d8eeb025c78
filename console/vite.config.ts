import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// Built into the Python package, whose server serves it; nothing is inlined, for the content
// security policy allows neither inline scripts nor inline styles.
export default defineConfig({
  plugins: [react()],
  build: {
    outDir: "../src/redrive/server/console",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    // One style sheet, with the page: a screen that is loaded later needs only its code.
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 700,
    license: { fileName: "licenses.md" },
  },
  server: { proxy: { "/api": "http://127.0.0.1:8025" } },
});
