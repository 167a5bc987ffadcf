// Modules that npm ships as ES modules only: jest has to transform them.
const esModules = [
  '@codemirror',
  '@jupyter/',
  '@jupyterlab/',
  '@lumino/',
  '@marijn',
  '@microsoft',
  '@rjsf',
  '@xterm',
  'exenv-es6',
  'lib0',
  'nanoid',
  'vscode-ws-jsonrpc',
  'y-protocols',
  'y-websocket',
  'yjs'
].join('|');

const base = require('@jupyterlab/testutils/lib/jest-config')(__dirname);

module.exports = {
  ...base,
  automock: false,
  coveragePathIgnorePatterns: [],
  collectCoverage: false,
  reporters: ['default'],
  testRegex: 'src/.*/__tests__/.*\\.spec\\.tsx?$',
  transformIgnorePatterns: [`/node_modules/(?!(?:${esModules})).*`]
};
