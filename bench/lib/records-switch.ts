/**
 * Loaded before the service (`--preload`): each SIGUSR2 turns request records off or on again. Turned off, it writes
 * what it has first.
 */
import { Requests } from "../../packages/gateway/src/rooms/requests/service.ts";

const FLUSH_MS = 10_000;
const { open } = Requests.prototype;
let isOn = true;
let requests: Requests | null = null;

Requests.prototype.open = function (surface, id) {
  requests = this;
  return isOn ? open.call(this, surface, id) : null;
};

process.on("SIGUSR2", () => {
  isOn = !isOn;
  if (!isOn) void requests?.flush(FLUSH_MS);
});
