import type { Instance } from "../cluster/support/cluster.ts";
import type { Payer } from "./flights.ts";
import type { KeyKind, Person, Plot, TierName } from "./plot.ts";
import type { Stage } from "./stage.ts";

export interface Someone {
  userId: string;
  email: string;
  token: string;
  tier: TierName;
  keys: Record<Exclude<KeyKind, "fresh">, string>;
  otherKeyId: string;
  conversationId: string;
  bankId: string;
}

const PAYMENT_TRIES_MAX = 40;
const PAYMENT_RETRY_MS = 50;
const PROJECTS = { plain: "default", other: "other", group: "default" } as const;
let rounds = 0;

/** The people of one round, with their keys, wallets and a group; nobody of an earlier round is among them. */
export class Population {
  people: Someone[] = [];
  groupId = "";
  #labels = 0;
  readonly #credited = new Map<string, number>();
  readonly #round = rounds++;

  constructor(readonly stage: Stage) {}

  get #first(): Instance {
    return this.stage.at(0);
  }

  async settle({ people, poolPoints }: Plot): Promise<this> {
    const admin = await this.stage.admin();
    this.people = await Promise.all(people.map((person, i) => this.#move(person, i)));
    const owner = this.people[0]!;
    this.groupId = (await this.#first.rpc("group.create", { name: "storm" }, owner.token)).id;
    for (const { email } of this.people.slice(1))
      await this.#first.rpc("group.members.add", { group_id: this.groupId, email }, owner.token);
    await Promise.all(
      this.people.map(async (someone, i) => {
        const { key } = await this.#first.rpc(
          "keys.create",
          { name: "g", group_id: this.groupId },
          someone.token,
        );
        someone.keys.group = key;
        someone.bankId = await this.stage.bank();
        await this.#first.rpc("group.members.add", { group_id: someone.bankId, email: someone.email }, admin);
        if (people[i]!.walletPoints > 0) await this.pay(i, people[i]!.walletPoints);
      }),
    );
    if (poolPoints > 0) await this.topUp(poolPoints);
    return this;
  }

  async #move({ tier }: Person, index: number): Promise<Someone> {
    const { access_token: token, user } = await this.stage.register(`p${index}-${this.#round}`);
    const { email, id: userId } = user;
    await this.stage.memories.teach(userId);
    const [, plain, other, conversation] = await Promise.all([
      this.stage.setTier(email, tier),
      this.#issue(token),
      this.#issue(token, PROJECTS.other),
      this.#first.rpc("conversations.create", {}, token),
    ]);
    return {
      userId,
      email,
      token,
      tier,
      keys: { plain: plain.key, other: other.key, group: "" },
      otherKeyId: other.id,
      conversationId: conversation.id,
      bankId: "",
    };
  }

  get poolAccount(): string {
    return `group:${this.groupId}`;
  }

  /** Points that an account was ever given. */
  credited(account: string): number {
    return this.#credited.get(account) ?? 0;
  }

  /** The most that could ever pay for someone's request: a key of a deleted group draws on its member's wallet. */
  creditedFor({ account, userId }: Payer): number {
    const own = this.credited(account);
    return this.isDisbanded ? Math.max(own, this.credited(`user:${userId}`)) : own;
  }

  #credit(account: string, points: number): void {
    this.#credited.set(account, this.credited(account) + points);
  }

  /** A group admin moves points from the pool to a wallet; refused whole when they are short. */
  async allocate(someone: Someone, points: number): Promise<void> {
    const params = { group_id: this.groupId, user_id: someone.email, points };
    const token = this.people[0]!.token;
    const isDone = await this.stage
      .at(1)
      .rpc("group.credits.allocate", params, token)
      .then(
        () => true,
        () => false,
      );
    if (isDone) this.#credit(`user:${someone.userId}`, points);
  }

  /** Whether the group was deleted: its keys are then their members' own. */
  isDisbanded = false;

  async disband(): Promise<void> {
    this.isDisbanded = true;
    await this.#first.rpc("group.delete", { group_id: this.groupId }, this.people[0]!.token).catch(() => {});
  }

  /** Takes back a key while its requests may be under way; later steps use another one with the same label. */
  async revoke(someone: Someone): Promise<void> {
    const { otherKeyId } = someone;
    const issued = await this.#issue(someone.token, PROJECTS.other);
    someone.keys.other = issued.key;
    someone.otherKeyId = issued.id;
    await this.stage.at(2).rpc("keys.revoke", { key_id: otherKeyId }, someone.token);
  }

  #issue(token: string, project?: string): Promise<{ id: string; key: string }> {
    return this.#first.rpc("keys.create", { name: "k", ...(project && { project }) }, token);
  }

  person(index: number): Someone {
    return this.people[index % this.people.length]!;
  }

  /** Points for a wallet, from outside of everything that the round looks at. */
  async pay(index: number, points: number): Promise<void> {
    const admin = await this.stage.admin();
    const { email, bankId, userId } = this.person(index);
    this.#credit(`user:${userId}`, points);
    await this.#first.rpc("group.credits.topup", { group_id: bankId, points }, admin);
    const params = { group_id: bankId, user_id: email, points };
    // Another payment from the same bank may be under way, and hold what it moves.
    for (let tries = 1; ; tries++) {
      try {
        await this.#first.rpc("group.credits.allocate", params, admin);
        return;
      } catch (error) {
        if (tries >= PAYMENT_TRIES_MAX) throw error;
        await Bun.sleep(PAYMENT_RETRY_MS);
      }
    }
  }

  async topUp(points: number): Promise<void> {
    this.#credit(this.poolAccount, points);
    const params = { group_id: this.groupId, points };
    // A deleted group cannot be topped up.
    await this.#first.rpc("group.credits.topup", params, await this.stage.admin()).catch((error) => {
      if (!this.isDisbanded) throw error;
    });
  }

  /** The key of this kind; a fresh one has a label that was never used before. */
  async key(someone: Someone, kind: KeyKind): Promise<{ key: string; payer: Payer }> {
    const { userId, keys, token } = someone;
    const own = { userId, account: `user:${userId}`, signedIn: false };
    if (kind === "group")
      return {
        key: keys.group,
        payer: { ...own, account: this.poolAccount, project: PROJECTS.group },
      };
    if (kind !== "fresh") return { key: keys[kind], payer: { ...own, project: PROJECTS[kind] } };
    const project = `label-${this.#labels++}`;
    const { key } = await this.#issue(token, project);
    return { key, payer: { ...own, project } };
  }

  signedIn({ userId }: Someone): Payer {
    return { userId, account: `user:${userId}`, signedIn: true, project: null };
  }
}
