import { JupyterFrontEnd } from '@jupyterlab/application';
import { CommandRegistry } from '@lumino/commands';
import { Widget } from '@lumino/widgets';
import { act, waitFor } from '@testing-library/react';

import { fakeCluster, jobView, liveStatus } from '../../model/testing';
import { GpuSettings } from '../../settings';
import { sidebar } from '../sidebar';

/** What the plugin adds to a shell that is none of JupyterLab's, without any optional service. */
function activate(settings = new GpuSettings()) {
  const added: { widget: Widget; area?: string }[] = [];
  const cluster = fakeCluster({
    status: liveStatus({ cluster: 'vision-lab' }),
    jobs: [jobView({ number: 12, mine: false })]
  });
  const app = {
    commands: new CommandRegistry(),
    shell: {
      add: (widget: Widget, area?: string) => added.push({ widget, area })
    }
  } as unknown as JupyterFrontEnd;
  sidebar.activate(app, cluster, settings, null, null, null);
  return { added, cluster, widget: added[0].widget };
}

async function attach(widget: Widget): Promise<void> {
  await act(async () => Widget.attach(widget, document.body));
}

describe('the sidebar in Lab and Notebook', () => {
  it('is a named panel of the left area, with an icon', () => {
    const { added, widget } = activate();
    expect(added).toEqual([{ widget, area: 'left' }]);
    expect(widget.id).toBe('jp-gpucluster-sidebar');
    expect(widget.title.caption).toBe('GPU cluster');
    expect(widget.title.icon).toBeTruthy();
    expect(widget.node.getAttribute('aria-label')).toBe('GPU cluster');
  });

  it('comes to be when it is looked at for the first time', async () => {
    const { cluster, widget } = activate();
    widget.hide();
    await attach(widget);
    expect(widget.node.textContent).toBe('');
    expect(cluster.interests.size).toBe(0);
    await act(async () => widget.show());
    await waitFor(() =>
      expect(widget.node.textContent).toContain('GPU cluster vision-lab')
    );
    expect(cluster.interests.size).toBeGreaterThan(0);
    await act(async () => widget.dispose());
    expect(cluster.interests.size).toBe(0);
  });

  it('lists at first the jobs that the settings name', async () => {
    const settings = new GpuSettings();
    await settings.set('jobsShown', 'all');
    const { cluster, widget } = activate(settings);
    await attach(widget);
    await waitFor(() =>
      expect([...cluster.interests].flatMap(one => one.topics ?? [])).toContain(
        'jobs'
      )
    );
    await act(async () => widget.dispose());
  });
});
