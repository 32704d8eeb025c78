import { useState } from "react";
import type { Span } from "../../api/documents";
import { Section } from "../../parts/Page";
import { Segments } from "../../parts/Segments";
import { Sparkline } from "../../parts/Sparkline";
import styles from "./Group.module.css";
import { trendName, useTrends } from "./useTrends";

const SPANS = (["1h", "6h", "24h", "7d", "30d"] as const).map((span) => ({ value: span, text: span }));

/** When the letters of a group arrived. */
export function GroupTrend({ fingerprint }: { fingerprint: string }) {
  const [span, setSpan] = useState<Span>("24h");
  const counts = useTrends([fingerprint], span)[fingerprint];
  return (
    <Section
      title="Arrivals"
      actions={<Segments label="Range" options={SPANS} chosen={span} onChange={setSpan} />}
    >
      <div className={styles.trend}>
        {counts && <Sparkline counts={counts} name={trendName(counts, span)} />}
        <div className={styles.trendFoot}>
          <span>{span} ago</span>
          <span>{counts && trendName(counts, span)}</span>
          <span>now</span>
        </div>
      </div>
    </Section>
  );
}
