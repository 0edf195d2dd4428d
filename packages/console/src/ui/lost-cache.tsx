import { percent } from "../lib/format.ts";
import { Status } from "./states.tsx";

/** A backend's prompts no longer come from its cache. */
export const LostCache = ({ share }: { share: number }) => (
  <Status tone="warn">Cached prompts: 0%, was {percent(share)}</Status>
);
