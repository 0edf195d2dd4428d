/** A realtime API that sends every appended frame back as output; prints its port. */
import { startRealtimeUpstream } from "@model-gateway/testing/realtime.ts";

const upstream = startRealtimeUpstream("dashscope", { echoAudio: true });
console.log(new URL(upstream.url).port);
