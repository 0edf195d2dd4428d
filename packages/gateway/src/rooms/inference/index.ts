import * as own from "./routes.ts";
import * as gemini from "./voices/gemini/routes.ts";
import * as ollama from "./voices/ollama/routes.ts";

export type { Deadlines } from "./call/deadlines.ts";
export * as methods from "./methods.ts";
export * as notifications from "./notifications.ts";
export { outlineOf } from "./request/payload.ts";
export { Inference, type InferenceOptions, type LineCall } from "./service.ts";
export { isFormType, readForm } from "./unit-work/form.ts";

const { voiceRoutes, workRoutes, ...others } = own;
export const routes = { ...voiceRoutes, ...ollama, ...gemini, ...others, ...workRoutes };
