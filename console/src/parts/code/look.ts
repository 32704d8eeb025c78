// How code looks: the console's own colours, by name, so that both themes follow by themselves.
import { HighlightStyle, syntaxHighlighting } from "@codemirror/language";
import { EditorView } from "@codemirror/view";
import { tags } from "@lezer/highlight";

const frame = EditorView.theme({
  "&": {
    height: "100%",
    color: "var(--text)",
    backgroundColor: "transparent",
    fontSize: "0.8125rem",
  },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.6", fontVariantLigatures: "none" },
  ".cm-content": { caretColor: "var(--accent)", paddingBlock: "0.6rem" },
  ".cm-gutters": {
    backgroundColor: "transparent",
    color: "var(--text-faint)",
    borderRight: "1px solid var(--line)",
  },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--hover)" },
  "&:not(.cm-focused) .cm-activeLine, &:not(.cm-focused) .cm-activeLineGutter": {
    backgroundColor: "transparent",
  },
  ".cm-cursor, .cm-dropCursor": { borderLeftColor: "var(--accent)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground":
    { backgroundColor: "light-dark(#c9d3ff, #36437f)" },
  "&.cm-focused .cm-matchingBracket": {
    backgroundColor: "var(--chosen)",
    outline: "1px solid var(--accent)",
  },
  "&:not(.cm-focused) .cm-matchingBracket": { backgroundColor: "transparent" },
  ".cm-searchMatch": { backgroundColor: "var(--warning-ground)", outline: "1px solid var(--warning)" },
  ".cm-foldPlaceholder": {
    backgroundColor: "var(--sunken)",
    borderColor: "var(--line)",
    color: "var(--text-soft)",
  },
  ".cm-panels": { backgroundColor: "var(--raised)", color: "var(--text)", borderColor: "var(--line)" },
  ".cm-panel input, .cm-panel button": { fontFamily: "var(--sans)", fontSize: "0.8125rem" },
  ".cm-textfield": {
    backgroundColor: "var(--surface)",
    color: "var(--text)",
    border: "1px solid var(--line-strong)",
    borderRadius: "5px",
  },
  ".cm-button": {
    backgroundImage: "none",
    backgroundColor: "var(--surface)",
    color: "var(--text)",
    border: "1px solid var(--line)",
    borderRadius: "5px",
  },
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--text)", borderColor: "var(--line)" },
  ".cm-specialChar": { color: "var(--danger)" },
});

const colours = HighlightStyle.define([
  { tag: tags.propertyName, color: "var(--code-key)" },
  { tag: [tags.string, tags.attributeValue], color: "var(--code-string)" },
  { tag: tags.number, color: "var(--code-number)" },
  { tag: [tags.bool, tags.null, tags.keyword, tags.tagName], color: "var(--code-word)" },
  { tag: [tags.comment, tags.punctuation, tags.brace, tags.squareBracket], color: "var(--text-soft)" },
  { tag: tags.attributeName, color: "var(--code-key)" },
  { tag: tags.invalid, color: "var(--danger)" },
]);

export const look = [frame, syntaxHighlighting(colours)];
