import { mailServerOf, sendMail } from "@model-gateway/wire/smtp";
import { type Post, postWebhook } from "@model-gateway/wire/webhook";

export interface Alert {
  /** The same for every attempt to send it. */
  id: string;
  /** What it is about: backend, node, key, user, group, journal or test. */
  kind: string;
  /** Percent used; 100 for what is gone, 0 for what is back. */
  level: number;
  message: string;
  /** Where the console shows it; null where nobody said under which address people open that. */
  url: string | null;
  at: string;
}

export interface AlertSettings {
  alertWebhookUrl: string | null;
  alertWebhookSecret: string | null;
  alertSmtpUrl: string | null;
  alertMailFrom: string | null;
  alertMailTo: readonly string[];
  publicUrl: string | null;
}

export interface Sender {
  name: "webhook" | "mail";
  /** Throws when the alert was not taken. */
  send(alert: Alert): Promise<void>;
}

const SUBJECT_CHARS = 120;

/** Those that are set; the configuration was checked: what belongs together is there. */
export function sendersOf(settings: AlertSettings, post: Post): Sender[] {
  const { alertWebhookUrl: url, alertWebhookSecret: secret, alertSmtpUrl } = settings;
  const senders: Sender[] = [];
  if (url !== null && secret !== null) {
    const send: Sender["send"] = (alert) =>
      postWebhook({ url, secret, id: alert.id, body: JSON.stringify(alert), nowMs: Date.now() }, post);
    senders.push({ name: "webhook", send });
  }
  if (alertSmtpUrl !== null) {
    const addresses = { from: settings.alertMailFrom!, to: settings.alertMailTo };
    const send: Sender["send"] = ({ id, message, url: link, at }) => {
      const subject = `[Model gateway] ${message.replace(/\p{Cc}/gu, " ").slice(0, SUBJECT_CHARS)}`;
      const text = [message, link ?? ""].join("\n\n").trim();
      return sendMail(mailServerOf(alertSmtpUrl), { ...addresses, subject, text, id, atMs: Date.parse(at) });
    };
    senders.push({ name: "mail", send });
  }
  return senders;
}
