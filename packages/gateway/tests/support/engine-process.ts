/** A fake engine as a process of its own, which a test can stop from reading. Prints its address. */
import { startFakeEngine } from "./engine.ts";

const { url } = startFakeEngine({
  models: [{ id: "voice-2", capabilities: ["realtime"] }],
  handlers: {
    "Engine.RealtimeEvent": ({ params: { session_id, event }, peer }) =>
      peer.notify("Engine.RealtimeEvent", { session_id, event: { type: "heard", of: event.type } }),
  },
});
console.log(url);
