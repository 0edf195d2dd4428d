import type { Result } from "@model-gateway/client";
import { moneyFormat, plural } from "../../lib/format.ts";
import { Button } from "../../ui/controls.tsx";
import { Status } from "../../ui/states.tsx";
import { Seen, Trials } from "./contact.tsx";
import { isVideo, type ModelPrice, useUnitPriceInWords } from "./set-price.tsx";

const MODELS_SHOWN_MAX = 100;

/** What a server that is not registered yet answered, with the prices of what it serves. */
export type Tested = Result<"backends.test"> & {
  prices: readonly ModelPrice[];
  /** The kind that it was tried as. */
  type: string;
};

export function TestResult({
  result: { ok, detail, models, latency_ms, prices, seen, agents },
  onPrice,
}: {
  result: Tested;
  onPrice(price: ModelPrice): void;
}) {
  const byUnit = useUnitPriceInWords();
  if (!ok)
    return (
      <div className="stack tight">
        <Status tone="bad">{detail ?? "It does not answer"}</Status>
        {seen && <Trials trials={seen.trials} />}
      </div>
    );
  const took = latency_ms === null ? "" : ` in ${Math.round(latency_ms)} ms`;
  const perMillion = moneyFormat(prices.flatMap(({ input_usd, output_usd }) => [input_usd, output_usd]));
  const unpriced = prices.filter((price) => price.unpriced).length;
  return (
    <div className="stack tight">
      <Status tone="good">
        Answers{took}, {plural(models.length, "model")} found
        {unpriced > 0 && `, ${unpriced} unpriced`}
      </Status>
      {seen && <Seen seen={seen} agents={agents} />}
      {prices.length > 0 && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard
        <section className="found-models" aria-label="Models found, with their prices" tabIndex={0}>
          <ul className="lines">
            {prices.slice(0, MODELS_SHOWN_MAX).map((price) => (
              <li key={price.model}>
                <span className="mono ellipsis">{price.model}</span>
                <span className="row">
                  <span className="muted small">
                    {price.input_usd !== null && !isVideo(price)
                      ? `${perMillion(price.input_usd)} in, ${perMillion(price.output_usd)} out`
                      : byUnit(price)}
                  </span>
                  {price.unpriced && <Status tone="warn">unpriced</Status>}
                  {price.not_billed && <span className="muted">not billed</span>}
                  <Button
                    small
                    look="quiet"
                    aria-label={`Set price of ${price.model}`}
                    onClick={() => onPrice(price)}
                  >
                    Set price
                  </Button>
                </span>
              </li>
            ))}
          </ul>
          {prices.length > MODELS_SHOWN_MAX && (
            <p className="muted small">and {prices.length - MODELS_SHOWN_MAX} more</p>
          )}
        </section>
      )}
      {prices.length > 0 && <p className="muted small">USD per million tokens, or by the unit.</p>}
    </div>
  );
}
