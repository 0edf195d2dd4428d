import type { RequestRecord } from "../../kernel/request-record.ts";
import { type Asker, type Facet, numberFor } from "./rows.ts";

/** Facets, and askers, that are remembered. */
export const KNOWN_MAX = 50_000;

/** Tells what was noted on a principal here from what other names, or forgotten ones, noted. */
let epochs = 0;

/** What the numbers in rows stand for. Whatever is not known yet is to be stored with the rows that name it. */
export class Names {
  /** By model: a text of everything would have to be made for every request. */
  readonly #facets = new Map<string, Facet[]>();
  #latestFacet: Facet | null = null;
  readonly #askers = new Map<string, Asker>();
  #epoch = ++epochs;
  readonly facetsById = new Map<number, Facet>();
  readonly askersById = new Map<number, Asker>();
  /** Not in the database yet, as far as is known here. */
  readonly newFacets: Facet[] = [];
  readonly newAskers: Asker[] = [];

  facetOf(record: RequestRecord, model: string): Facet {
    const latest = this.#latestFacet;
    if (latest !== null && latest.model === model && isFacetOf(latest, record)) return latest;
    const known = this.#facets.get(model)?.find((facet) => isFacetOf(facet, record));
    const facet = known ?? this.#newFacet(record, model);
    this.#latestFacet = facet;
    return facet;
  }

  #newFacet({ surface, route, status, seldom }: RequestRecord, model: string): Facet {
    const names = { surface, backend: route?.name ?? "", status, code: seldom.code ?? "" };
    const id = numberFor("facet", surface, model, names.backend, status, names.code);
    // An upstream names its models as it likes, but Postgres rejects NUL in a text.
    const facet = { id, model: model.replaceAll("\u0000", ""), ...names };
    this.newFacets.push(facet);
    const ofModel = this.#facets.get(model);
    if (ofModel) ofModel.push(facet);
    else this.#facets.set(model, [facet]);
    this.facetsById.set(id, facet);
    return facet;
  }

  /** Noted on the principal: the next request of a key mostly brings the same one, and a map is seldom in the caches. */
  askerIdOf(record: RequestRecord): number {
    const { principal } = record;
    if (principal?.recordedIn === this.#epoch) return principal.recordedAs!;
    const { id } = this.#asker(record);
    if (principal !== null) {
      principal.recordedAs = id;
      principal.recordedIn = this.#epoch;
    }
    return id;
  }

  #asker({ principal, seldom }: RequestRecord): Asker {
    const userId = principal?.userId ?? seldom.userId;
    const keyId = principal?.keyId ?? null;
    const groupId = principal?.group?.id ?? null;
    const project = principal?.project ?? null;
    const key = keyId ?? userId ?? "";
    const known = this.#askers.get(key);
    if (known && known.groupId === groupId && known.project === project) return known;
    const id = numberFor("asker", userId, keyId, groupId, project);
    const asker = { id, userId, keyId, groupId, project, keyPrefix: principal?.keyPrefix ?? null };
    this.newAskers.push(asker);
    this.#askers.set(key, asker);
    this.askersById.set(id, asker);
    return asker;
  }

  /** What is forgotten is stored again when it is next seen, which changes nothing. */
  forgetIfMany(): void {
    if (this.facetsById.size <= KNOWN_MAX && this.askersById.size <= KNOWN_MAX) return;
    this.#facets.clear();
    this.#latestFacet = null;
    this.#askers.clear();
    this.#epoch = ++epochs;
    this.facetsById.clear();
    this.askersById.clear();
  }
}

const isFacetOf = (facet: Facet, { surface, route, status, seldom }: RequestRecord): boolean =>
  facet.surface === surface &&
  facet.backend === (route?.name ?? "") &&
  facet.status === status &&
  facet.code === (seldom.code ?? "");
