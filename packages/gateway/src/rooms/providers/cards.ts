import type { AuthName, DialectName } from "../../backends/contract.ts";
import table from "./cards.json" with { type: "json" };

/** One API of a provider, as it is registered: what the form fills in. */
interface ProviderApi {
  serves: string;
  type: string;
  /** What stands in braces is the operator's own, such as the region. */
  url: string;
  needs_key: boolean;
  /** Its listing does not say what can be called. */
  needs_models?: boolean;
  dialects?: DialectName[];
  auth?: AuthName;
}

/** A well-known provider; always listed, never changed or removed. Of several APIs, the first is offered first. */
interface ProviderCard {
  id: string;
  name: string;
  description: string;
  website_domain: string;
  apis: ProviderApi[];
}

/** As the providers' own documentation says. */
export const PROVIDER_CARDS = table as ProviderCard[];
