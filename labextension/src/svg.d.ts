/** An icon's source; the builder and jest both give it as text. */
declare module '*.svg' {
  const source: string;
  export default source;
}
