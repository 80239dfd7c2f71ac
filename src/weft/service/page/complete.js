// CodeMirror asks every source for completions; this one knows the functions and the streams, and finds their aliases in the text.
(async () => {
  const CM = await import("nicegui-codemirror");
  const view = await getElement(ELEMENT).editorPromise;
  const streams = STREAMS, keywords = KEYWORDS, functions = FUNCTIONS;
  const quoted = (name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const aliases = (text) => {
    const found = {};
    for (const name of Object.keys(streams)) {
      const word = quoted(name);
      const use = new RegExp("\\b" + word + "\\b\\s*(?:\\[[^\\]]*\\])?\\s*(?:AS\\s+)?([A-Za-z_]\\w*)?", "gi");
      for (const match of text.matchAll(use)) {
        if (match[1] && !/^(where|on|and|join|left|right|full|inner|semi|anti|cross)$/i.test(match[1])) found[match[1]] = name;
      }
      found[name] = found[name] || name;
    }
    return found;
  };
  const named = (text) => {
    const from = /\bFROM\b([\s\S]*)/i.exec(text);
    return from ? Object.keys(streams).filter((name) => new RegExp("\\b" + quoted(name) + "\\b", "i").test(from[1])) : [];
  };
  const source = (context) => {
    const word = context.matchBefore(/[\w.]+/);
    if (word ? /^\d/.test(word.text) : !context.explicit) return null;
    const text = word ? word.text : "", dot = text.lastIndexOf(".");
    const known = aliases(context.state.doc.toString());
    if (dot >= 0) {
      const columns = streams[known[text.slice(0, dot)]] || [];
      return {from: word.from + dot + 1, options: columns.map(([label, detail]) => ({label, detail, type: "property", boost: 2}))};
    }
    const options = keywords.map((label) => ({label, type: "keyword"}));
    for (const [label, detail] of functions) options.push({label, detail, type: "function", boost: -1});
    // Columns without a stream before them: of the streams that the text names, or of all before it names any.
    const used = named(context.state.doc.toString());
    for (const name of used.length ? used : Object.keys(streams))
      for (const [label, type] of streams[name])
        options.push({label, type: "property", detail: type + " of " + name, boost: used.length ? 1 : 0});
    for (const name of Object.keys(streams)) options.push({label: name, type: "class", detail: "stream", boost: 2});
    for (const [alias, name] of Object.entries(known))
      if (alias !== name) options.push({label: alias, type: "variable", detail: name, boost: 1});
    return {from: word ? word.from : context.pos, options};
  };
  view.dispatch({effects: CM.StateEffect.appendConfig.of(CM.EditorState.languageData.of(() => [{autocomplete: source}]))});
})()
