import type { Bus } from "../../bus/contract.ts";
import { BoundedMap } from "../../kernel/bounded.ts";
import { hmacSha256 } from "../../kernel/keyed-hash.ts";
import type { Log } from "../../kernel/log.ts";

const TOPIC = "signing-secret";
const FINGERPRINT_LENGTH = 16;
const OTHERS_MAX = 100;

interface SigningWatchOptions {
  bus: Bus;
  log: Log;
  secret: Uint8Array;
}

/**
 * Instances that sign with different secrets reject each other's tokens whenever the load balancer switches.
 * Each announces a fingerprint of its secret, and an instance that sees another one logs it once.
 */
export async function watchSigning({ bus, log, secret }: SigningWatchOptions): Promise<void> {
  if (!bus.shared) return;
  const own = hmacSha256(secret, TOPIC).toString("hex").slice(0, FINGERPRINT_LENGTH);
  const others = new BoundedMap<string, true>(OTHERS_MAX);
  const heard = bus.subscribe(TOPIC, (other) => {
    if (other === own || others.get(other)) return;
    others.set(other, true);
    log.error(
      "another instance signs tokens with a different secret, so each rejects the other's: set the same SERVICE_JWT_SECRET everywhere",
    );
    bus.publish(TOPIC, own);
  });
  await heard.ready;
  bus.publish(TOPIC, own);
}
