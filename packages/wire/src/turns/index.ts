export { beforeSending } from "./outbox.ts";
