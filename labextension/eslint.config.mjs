import js from '@eslint/js';
import jupyter from '@jupyter/eslint-plugin';
import prettier from 'eslint-config-prettier';
import hooks from 'eslint-plugin-react-hooks';
import ts from 'typescript-eslint';

export default ts.config(
  {
    ignores: ['lib', 'node_modules', '*.config.js', '*.config.mjs', 'scripts']
  },
  js.configs.recommended,
  ...ts.configs.recommended,
  jupyter.configs.recommended,
  prettier,
  {
    plugins: { 'react-hooks': hooks },
    rules: {
      ...hooks.configs.recommended.rules,
      '@typescript-eslint/no-unused-vars': ['error', { args: 'none' }],
      '@typescript-eslint/naming-convention': [
        'error',
        {
          selector: 'interface',
          format: ['PascalCase'],
          custom: { regex: '^I[A-Z]', match: true },
          filter: { regex: 'View$|^Live|^Schema', match: false }
        }
      ],
      curly: ['error', 'all'],
      eqeqeq: 'error'
    }
  },
  {
    // Tests put together just what is looked at.
    files: ['src/**/__tests__/**', 'src/**/testing.ts'],
    rules: {
      '@typescript-eslint/no-explicit-any': 'off',
      'jupyter/no-untranslated-string': 'off'
    }
  },
  {
    files: ['src/api/schemas.ts'],
    rules: { '@typescript-eslint/naming-convention': 'off' }
  }
);
