import { percent } from "../lib/format.ts";
import { Status } from "./states.tsx";

/** A backend's prompts no longer come from its cache. */
export const LostCache = ({ share }: { share: number }) => (
  <Status tone="warn">Nothing comes from its cache any more; before, {percent(share)} of prompts did</Status>
);
