// Text of any content, to read or to write. It stays text: nothing of it is ever taken for markup,
// and nothing is changed that nobody typed, line ends included.
//
// CodeMirror writes its styles as <style> into the page, which the content security policy refuses.
// In a shadow root it uses constructed style sheets, which it allows.
import { json } from "@codemirror/lang-json";
import { xml } from "@codemirror/lang-xml";
import { EditorState, type Extension } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { basicSetup } from "codemirror";
import { useEffect, useRef } from "react";
import styles from "./Code.module.css";
import { look } from "./look";

export type Language = "json" | "xml" | "text";

/** Colours for more than this would be felt at every key. */
const MOST_COLOURED = 1_000_000;

interface CodeProps {
  text: string;
  language: Language;
  /** What it is, for screen readers. */
  label: string;
  wrap?: boolean;
  /** With it the text can be changed. It is told every change. */
  onChange?: (text: string) => void;
  /** The height follows the text, up to a limit; else it is that of what stands around it. */
  grows?: boolean;
}

export default function Code({ text, language, label, wrap = true, onChange, grows }: CodeProps) {
  const host = useRef<HTMLDivElement>(null);
  const tell = useRef(onChange);
  const editable = onChange !== undefined;
  useEffect(() => {
    tell.current = onChange;
  });
  useEffect(() => {
    const element = host.current;
    if (element === null) return;
    const root = element.shadowRoot ?? element.attachShadow({ mode: "open" });
    const made = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: text,
        extensions: [
          ...extensions(text, language, label, wrap),
          editable ? [] : [EditorState.readOnly.of(true), EditorView.editable.of(false)],
          EditorView.updateListener.of((update) => {
            if (update.docChanged) tell.current?.(update.state.sliceDoc());
          }),
        ],
      }),
    });
    if (editable) made.focus();
    return () => made.destroy();
    // What is typed is in the editor; a text that comes from outside makes a new one (`key`).
  }, [editable, language, label, wrap, editable ? null : text]);
  return <div ref={host} className={`${styles.host} ${grows ? styles.grows : ""}`} />;
}

function extensions(text: string, language: Language, label: string, wrap: boolean): Extension[] {
  const coloured = text.length <= MOST_COLOURED;
  return [
    basicSetup,
    look,
    coloured && language === "json" ? json() : [],
    coloured && language === "xml" ? xml() : [],
    wrap ? EditorView.lineWrapping : [],
    // Without it every kind of line end would become one.
    EditorState.lineSeparator.of(lineEndOf(text)),
    EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
    typingOverSelection,
  ];
}

/** Left to the browser, it deletes the selection in the page first, and keeps the look of what was there
 * by a style attribute, which the content security policy refuses. So the text is changed instead, and
 * the page follows. */
const typingOverSelection = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { state } = view;
    const { from, to, empty } = state.selection.main;
    const text = event.inputType === "insertText" ? event.data : null;
    if (text === null || empty || state.readOnly || !event.cancelable || view.composing) return false;
    event.preventDefault();
    const typed = () =>
      state.update(state.replaceSelection(text), { userEvent: "input.type", scrollIntoView: true });
    // Brackets and quotes are put around what is selected.
    const taken = state.facet(EditorView.inputHandler).some((take) => take(view, from, to, text, typed));
    if (!taken) view.dispatch(typed());
    return true;
  },
});

/** `\r\n` only where every line ends so; else a `\r` is a character like any other. */
function lineEndOf(text: string): string {
  const ends = text.match(/\r?\n/g) ?? [];
  return ends.length > 0 && ends.every((end) => end === "\r\n") ? "\r\n" : "\n";
}
