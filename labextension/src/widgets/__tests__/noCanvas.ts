/** jsdom complains of canvases, which xterm.js asks for when it is loaded and does without. Imported before it. */
HTMLCanvasElement.prototype.getContext = () => null;

export {};
