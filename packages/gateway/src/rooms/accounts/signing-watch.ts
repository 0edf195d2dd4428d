import { createHmac } from "node:crypto";
import type { Bus } from "../../bus/contract.ts";
import { BoundedMap } from "../../kernel/bounded.ts";
import type { Log } from "../../kernel/log.ts";

const TOPIC = "signing-secret";
const FINGERPRINT_LENGTH = 16;
const OTHERS_MAX = 100;

export interface SigningWatchOptions {
  bus: Bus;
  log: Log;
  secret: Uint8Array;
}

/**
 * Instances that sign with different secrets refuse each other's tokens, now and then, as the balancer has it.
 * Each tells the others which one it has, and whoever hears of another says so in its log, once.
 */
export async function watchSigning({ bus, log, secret }: SigningWatchOptions): Promise<void> {
  if (!bus.shared) return;
  const own = createHmac("sha256", secret).update(TOPIC).digest("hex").slice(0, FINGERPRINT_LENGTH);
  const others = new BoundedMap<string, true>(OTHERS_MAX);
  const heard = bus.subscribe(TOPIC, (other) => {
    if (other === own || others.get(other)) return;
    others.set(other, true);
    log.error(
      "another instance signs with another secret, so each refuses the other's tokens: set one SERVICE_JWT_SECRET for all",
    );
    bus.publish(TOPIC, own);
  });
  await heard.ready;
  bus.publish(TOPIC, own);
}
