export { beforeSending, sendsElsewhere } from "./outbox.ts";
