// The body: on many lines, as text without its encodings, and as it was received. Always as text.
import { useState } from "react";
import { addressOf } from "../../api/client";
import type { Body, Content, Letter } from "../../api/documents";
import { Choices } from "../../parts/FilterBar";
import { CopyButton } from "../../parts/CopyButton";
import { ErrorNotice, sentence } from "../../parts/ErrorNotice";
import { Icon } from "../../parts/Icon";
import { bytes } from "../../parts/numbers";
import { Section, Waiting } from "../../parts/Page";
import { Tabs } from "../../parts/Tabs";
import { Code } from "../../parts/code/LazyCode";
import type { Language } from "../../parts/code/Code";
import { hexDump } from "./hexDump";
import styles from "./Payload.module.css";
import { contentTypeOf, standingEdit, useContent } from "./useLetter";

type Form = "pretty" | "decoded" | "raw";

export function Payload({ letter }: { letter: Letter }) {
  const edit = standingEdit(letter);
  const [original, setOriginal] = useState(false);
  const [picked, setPicked] = useState<Form | null>(null);
  const edited = edit !== undefined && !original;
  const content = useContent(letter.id, edited);
  const { body } = edited ? edit : letter;
  const type = contentTypeOf(edited ? edit : letter);
  const forms = formsOf(content.data);
  const form = picked !== null && forms.some(({ name }) => name === picked) ? picked : (forms[0]?.name ?? "raw");
  const text = textOf(form, content.data, body);
  const download = addressOf("/api/v1/letters/{letter_id}/body", {
    path: { letter_id: letter.id },
    query: { edited: edited || undefined },
  });
  return (
    <Section
      title="Payload"
      flush
      actions={
        edit && (
          <Choices
            label="Which message"
            options={[
              { value: "edited", text: "As it will be sent" },
              { value: "original", text: "Original" },
            ]}
            chosen={[original ? "original" : "edited"]}
            onChange={() => setOriginal(!original)}
          />
        )
      }
    >
      <Tabs
        label="Form of the payload"
        tabs={forms}
        chosen={form}
        onChange={setPicked}
        beside={
          <>
            <span>{describe(letter, type, content.data)}</span>
            <CopyButton text={text} what="what is shown" />
            <a className={styles.download} href={download} download title="Download, byte for byte">
              <Icon name="download" size={16} />
              <span className="unseen">Download the body</span>
            </a>
          </>
        }
      >
        <Notes content={content.data} body={body} letter={letter} form={form} />
        {content.error && <ErrorNotice error={content.error} retry={() => void content.refetch()} />}
        {content.data === undefined && !content.error ? (
          <Waiting lines={6} />
        ) : content.data?.kind === "empty" ? (
          <p className={styles.note}>The body is empty.</p>
        ) : (
          <Code text={text} language={languageOf(body, type, form, content.data)} label="Payload" grows />
        )}
      </Tabs>
    </Section>
  );
}

function formsOf(content: Content | undefined): { name: Form; text: string }[] {
  const forms: { name: Form; text: string }[] = [];
  if (content?.pretty) forms.push({ name: "pretty", text: "Pretty" });
  if (content) forms.push({ name: "decoded", text: content.kind === "binary" ? "Bytes" : "Text" });
  forms.push({ name: "raw", text: "Raw" });
  return forms;
}

function textOf(form: Form, content: Content | undefined, body: Body): string {
  if (form === "pretty" && content?.pretty) return content.pretty;
  if (form === "decoded" && content) return content.text ?? content.hex ?? "";
  return body.encoding === "utf8" ? body.data : hexDump(body.data);
}

function languageOf(body: Body, type: string | null, form: Form, content: Content | undefined): Language {
  if (form === "raw" && body.encoding !== "utf8") return "text";
  if (content?.kind === "json") return "json";
  return /[/+]xml\b/.test(type ?? "") ? "xml" : "text";
}

function describe(letter: Letter, type: string | null, content: Content | undefined): string {
  const parts = [type ?? "no content type"];
  if (content && content.undone.length > 0) parts.push(`${content.undone.join(", ")} undone`);
  return [...parts, bytes(letter.size)].join(" · ");
}

function Notes(props: { content: Content | undefined; body: Body; letter: Letter; form: Form }) {
  const { content, body, letter, form } = props;
  const notes: string[] = [];
  const truncated = form === "raw" ? body.truncated : content?.truncated;
  if (truncated) {
    notes.push(`Only its beginning is shown, for it is large (${bytes(letter.size)}). The download has all of it.`);
  }
  if (content?.redacted) notes.push("A redaction rule hides parts of it.");
  if (content?.problem) notes.push(sentence(content.problem));
  else if (letter.bodyNote) notes.push(sentence(letter.bodyNote));
  return notes.map((note) => (
    <p key={note} className={styles.note}>
      {note}
    </p>
  ));
}
