import { createRoot } from "react-dom/client";
import { App } from "./app.tsx";
import { pathHere } from "./lib/base.ts";
import { keepTurnsOverReloads } from "./lib/conversation-turns.ts";
import "./lib/theme.ts";
import { findPage } from "./pages/index.ts";

keepTurnsOverReloads();
// Without its page the frame would show a skeleton, which React then keeps for a third of a second.
await findPage(pathHere())
  ?.entry.preload()
  .catch(() => {});
createRoot(document.getElementById("root")!).render(<App />);
