import type { ReactNode } from "react";
import { Link } from "wouter";
import { written } from "../../api/exactJson";
import type { Letter } from "../../api/documents";
import { count } from "../../parts/numbers";
import { Time } from "../../parts/Time";
import styles from "./Facts.module.css";

/** Where it comes from and what is known of it. */
export function Facts({ letter }: { letter: Letter }) {
  const { origin, metadata } = letter;
  return (
    <dl className={styles.facts}>
      <Fact name="Queue">{origin.queue ?? "unknown"}</Fact>
      <Fact name="Exchange">{origin.exchange || "(default)"}</Fact>
      <Fact name="Routing key">{origin.routingKey}</Fact>
      <Fact name="Virtual host">{origin.vhost}</Fact>
      <Fact name="Message id">{letter.messageId}</Fact>
      <Fact name="Source">{metadata.source}</Fact>
      <Fact name="Tags">{metadata.tags.join(", ")}</Fact>
      <Fact name="First failed">
        <Time at={letter.firstFailedAt} />
      </Fact>
      <Fact name="Collected">
        <Time at={letter.createdAt} /> from {letter.collectedFrom}
      </Fact>
      <Fact name="Retries">{`${count(letter.retryCount)} by tiers, ${count(letter.dlqRetryCount)} as a letter`}</Fact>
      <Fact name="Sent">{times(letter.generation)}</Fact>
      <Fact name="Locked">
        {letter.lockedBy && (
          <>
            by {letter.lockedBy} <Time at={letter.lockedAt} />
          </>
        )}
      </Fact>
      <Other name={letter.possibleDuplicate ? "Possible duplicate of" : "Duplicate of"} id={letter.duplicateOf} />
      <Other name="Made from letter" id={letter.parentId} />
      <Other name="Was before" id={letter.previousId} />
      {Object.entries(letter.properties).map(([name, value]) => name !== "messageId" && (
        <Fact key={name} name={PROPERTIES[name] ?? name}>
          {written(value)}
        </Fact>
      ))}
    </dl>
  );
}

/** `never`, `once`, `3 times` */
function times(number: number): string {
  if (number === 0) return "never";
  return number === 1 ? "once" : `${count(number)} times`;
}

function Fact({ name, children }: { name: string; children: ReactNode }) {
  if (children === null || children === "") return null;
  return (
    <div className={styles.fact}>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Other({ name, id }: { name: string; id: string | null }) {
  if (id === null) return null;
  return (
    <Fact name={name}>
      <Link href={`/letters/${id}`}>{id}</Link>
    </Fact>
  );
}

/** Properties of the message by the names that people use. */
const PROPERTIES: Record<string, string> = {
  contentType: "Content type",
  contentEncoding: "Content encoding",
  deliveryMode: "Delivery mode",
  priority: "Priority",
  correlationId: "Correlation id",
  replyTo: "Reply to",
  expiration: "Expiration",
  timestamp: "Timestamp",
  type: "Type",
  userId: "User id",
  appId: "App id",
  clusterId: "Cluster id",
};
