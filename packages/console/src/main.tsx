import { createRoot } from "react-dom/client";
import { App } from "./app.tsx";
import "./lib/theme.ts";

createRoot(document.getElementById("root")!).render(<App />);
