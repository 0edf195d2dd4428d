import { createRoot } from "react-dom/client";
import { App } from "./app.tsx";
import "./lib/theme.ts";
import { findPage } from "./pages/index.ts";

// Without its page the frame would show a skeleton, which React then keeps for a third of a second.
await findPage(location.pathname)
  ?.entry.preload()
  .catch(() => {});
createRoot(document.getElementById("root")!).render(<App />);
